fn value_of(x: f32) -> f32 {
    return x * p.constant;
}
