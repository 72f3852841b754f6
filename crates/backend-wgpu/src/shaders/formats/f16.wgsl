// F16: half precision.

// Values `8 * group ..` of the row at byte `row`.
fn source_eight(row: u32, group: u32) -> Eight {
    let low = source_words(row + group * 16u);
    let high = source_words(row + group * 16u + 8u);
    return Eight(
        vec4<f32>(unpack2x16float(low.x), unpack2x16float(low.y)),
        vec4<f32>(unpack2x16float(high.x), unpack2x16float(high.y)),
    );
}
