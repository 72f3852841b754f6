fn value_of(x: f32) -> f32 {
    return p.constant * tanh_of(x / p.constant);
}
