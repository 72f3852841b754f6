fn over_factor(turns: Turns, pair: u32) -> Turns {
    return turns;
}
