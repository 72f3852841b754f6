// Q5_K, 176 bytes for 256 values: 16 of scales, 32 of fifth bits (a bit for each run), then the nibbles as in Q4_K.

// Values `8 * group ..` of the row at byte `row`.
fn source_eight(row: u32, group: u32) -> Eight {
    let block = row + (group >> 5u) * 176u;
    let run = (group >> 2u) & 7u;
    let place = (group & 3u) * 8u;
    let fifths = (source_words(block + 16u + place) >> vec2<u32>(run)) & vec2<u32>(0x01010101u);
    let words = source_words(block + 48u + (run >> 1u) * 32u + place);
    let quants = nibbles_of(words, (run & 1u) * 4u) | (fifths << vec2<u32>(4u));
    let scale_min = source_scale_min(block, run);
    return affine(bytes_of(quants), scale_min.x, scale_min.y);
}
