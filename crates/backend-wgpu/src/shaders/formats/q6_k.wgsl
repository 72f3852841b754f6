// Q6_K, 210 bytes for 256 values: 128 of nibbles, 64 of upper bit pairs, 16 signed scales, a unit of them. Each half of
// the values has its half of the bits: nibbles of two runs of 64 side by side, pairs of four runs of 32.

// Values `8 * group ..` of the row at byte `row`.
fn source_eight(row: u32, group: u32) -> Eight {
    let block = row + (group >> 5u) * 210u;
    let half = (group >> 4u) & 1u;
    let low = source_words(block + half * 64u + (group & 7u) * 8u);
    let high = source_words(block + 128u + half * 32u + (group & 3u) * 8u);
    let nibbles = nibbles_of(low, ((group >> 3u) & 1u) * 4u);
    let pairs = (high >> vec2<u32>(((group >> 2u) & 3u) * 2u)) & vec2<u32>(0x03030303u);
    let scale = unpack4xI8(source_byte(block + 192u + ((group >> 1u) & 15u))).x;
    let quants = bytes_of(nibbles | (pairs << vec2<u32>(4u)));
    return scaled(quants, source_half(block + 208u) * f32(scale), -32.0);
}
