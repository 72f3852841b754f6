fn places_of(pair: u32, pairs: u32) -> vec2<u32> {
    return vec2<u32>(pair, pair + pairs);
}
