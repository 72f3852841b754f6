fn value_of(x: f32, y: f32) -> f32 {
    return x + y;
}
