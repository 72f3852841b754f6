// Q8_0, 34 bytes for 32 values: a scale, 32 signed bytes.

// Values `8 * group ..` of the row at byte `row`.
fn source_eight(row: u32, group: u32) -> Eight {
    let block = row + (group >> 2u) * 34u;
    let words = source_words(block + 2u + (group & 3u) * 8u);
    return scaled(signed_bytes_of(words), source_half(block), 0.0);
}
