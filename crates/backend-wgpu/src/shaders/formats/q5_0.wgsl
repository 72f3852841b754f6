// Q5_0, 22 bytes for 32 values: a scale, 32 fifth bits, 32 nibbles, the lower ones first; around 16.

// Values `8 * group ..` of the row at byte `row`.
fn source_eight(row: u32, group: u32) -> Eight {
    let block = row + (group >> 2u) * 22u;
    let fifths = fifth_bits(source_byte(block + 2u + (group & 3u)));
    let words = source_words(block + 6u + (group & 1u) * 8u);
    let nibbles = nibbles_of(words, (group & 2u) * 2u);
    return scaled(bytes_of(nibbles | fifths), source_half(block), -16.0);
}
