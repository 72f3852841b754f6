// Q4_K, 144 bytes for 256 values: 16 of scales, then the nibbles of two runs of 32 side by side.

// Values `8 * group ..` of the row at byte `row`.
fn source_eight(row: u32, group: u32) -> Eight {
    let block = row + (group >> 5u) * 144u;
    let run = (group >> 2u) & 7u;
    let words = source_words(block + 16u + (run >> 1u) * 32u + (group & 3u) * 8u);
    let scale_min = source_scale_min(block, run);
    return affine(bytes_of(nibbles_of(words, (run & 1u) * 4u)), scale_min.x, scale_min.y);
}
