// The nearest half-precision number, ties to even, as bits. The builtin may round toward zero, or to the largest number
// what is beyond it.
fn half_bits(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    let sign = (bits >> 16u) & 0x8000u;
    let size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) {
        return sign | 0x7e00u | ((size >> 13u) & 0x3ffu);
    }
    if (size >= 0x47800000u) {
        return sign | 0x7c00u;
    }
    if (size >= 0x38800000u) {
        return sign | ((size - 0x38000000u + 0xfffu + ((size >> 13u) & 1u)) >> 13u);
    }
    if (size < 0x33000000u) {
        return sign;
    }
    // In units of 2^-24, the smallest number.
    let mantissa = (size & 0x007fffffu) | 0x00800000u;
    let shift = 126u - (size >> 23u);
    let whole = mantissa >> shift;
    let rest = mantissa & ((1u << shift) - 1u);
    let tie = 1u << (shift - 1u);
    let up = rest > tie || (rest == tie && (whole & 1u) == 1u);
    return sign | (whole + select(0u, 1u, up));
}
