// F32: single precision; rows begin at whole words.

// Values `8 * group ..` of the row at byte `row`.
fn source_eight(row: u32, group: u32) -> Eight {
    let i = (row >> 2u) + group * 8u;
    let low = vec4<u32>(source[i], source[i + 1u], source[i + 2u], source[i + 3u]);
    let high = vec4<u32>(source[i + 4u], source[i + 5u], source[i + 6u], source[i + 7u]);
    return Eight(bitcast<vec4<f32>>(low), bitcast<vec4<f32>>(high));
}
