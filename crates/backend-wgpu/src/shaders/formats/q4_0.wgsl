// Q4_0, 18 bytes for 32 values: a scale, 32 nibbles around 8, the lower ones first.

// Values `8 * group ..` of the row at byte `row`.
fn source_eight(row: u32, group: u32) -> Eight {
    let block = row + (group >> 2u) * 18u;
    let words = source_words(block + 2u + (group & 1u) * 8u);
    let nibbles = nibbles_of(words, (group & 2u) * 2u);
    return scaled(bytes_of(nibbles), source_half(block), -8.0);
}
