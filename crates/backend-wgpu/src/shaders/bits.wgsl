// Numbers of packed bits.

// The bytes of two words as numbers from 0 on.
fn bytes_of(words: vec2<u32>) -> Eight {
    return Eight(vec4<f32>(unpack4xU8(words.x)), vec4<f32>(unpack4xU8(words.y)));
}

// The bytes of two words as signed numbers.
fn signed_bytes_of(words: vec2<u32>) -> Eight {
    return Eight(vec4<f32>(unpack4xI8(words.x)), vec4<f32>(unpack4xI8(words.y)));
}

// The lower or the upper nibble (`shift` 0 or 4) of each byte.
fn nibbles_of(words: vec2<u32>, shift: u32) -> vec2<u32> {
    return (words >> vec2<u32>(shift)) & vec2<u32>(0x0f0f0f0fu);
}

// Bit `i` of the lowest eight becomes bit 4 of byte `i`.
fn fifth_bits(bits: u32) -> vec2<u32> {
    let nibbles = vec2<u32>(bits & 15u, (bits >> 4u) & 15u);
    // The factor copies a nibble so that its bit `i` lies at bit `8 i`.
    return ((nibbles * 0x00204081u) & vec2<u32>(0x01010101u)) << vec2<u32>(4u);
}

// `scale * (values + offset)`.
fn scaled(values: Eight, scale: f32, offset: f32) -> Eight {
    return Eight(scale * (values.low + offset), scale * (values.high + offset));
}

// `scale * values + offset`.
fn affine(values: Eight, scale: f32, offset: f32) -> Eight {
    return Eight(scale * values.low + offset, scale * values.high + offset);
}
