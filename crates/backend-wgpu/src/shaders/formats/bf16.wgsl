// BF16: the upper halves of singles.

fn source_four(words: vec2<u32>) -> vec4<f32> {
    let lower = words << vec2<u32>(16u);
    let upper = words & vec2<u32>(0xffff0000u);
    return bitcast<vec4<f32>>(vec4<u32>(lower.x, upper.x, lower.y, upper.y));
}

// Values `8 * group ..` of the row at byte `row`.
fn source_eight(row: u32, group: u32) -> Eight {
    let byte = row + group * 16u;
    return Eight(source_four(source_words(byte)), source_four(source_words(byte + 8u)));
}
