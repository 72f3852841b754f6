// An invocation writes the two values of a word, or the one that is the row's.
fn write_row(first: u32, position: u32, lane: u32, wanted: bool) {
    let to = p.state / 2u + position * p.cols;
    let phase = to & 1u;
    for (var word = lane; wanted && 2u * word < p.cols + phase; word += WORKGROUP) {
        let high = 2u * word + 1u - phase;
        let has_low = high > 0u;
        let has_high = high < p.cols;
        let low_bits = half_bits(x[first + max(high, 1u) - 1u]);
        let high_bits = half_bits(x[first + min(high, p.cols - 1u)]);
        if (has_low && has_high) {
            atomicStore(&state[(to + high) >> 1u], low_bits | (high_bits << 16u));
        } else if (has_high) {
            store_half(to + high, high_bits);
        } else {
            store_half(to + high - 1u, low_bits);
        }
    }
}
