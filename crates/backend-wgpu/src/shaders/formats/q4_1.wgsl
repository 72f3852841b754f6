// Q4_1, 20 bytes for 32 values: a scale, a minimum, 32 nibbles, the lower ones first.

// Values `8 * group ..` of the row at byte `row`.
fn source_eight(row: u32, group: u32) -> Eight {
    let block = row + (group >> 2u) * 20u;
    let scale_min = unpack2x16float(source[block >> 2u]);
    let words = source_words(block + 4u + (group & 1u) * 8u);
    let nibbles = nibbles_of(words, (group & 2u) * 2u);
    return affine(bytes_of(nibbles), scale_min.x, scale_min.y);
}
