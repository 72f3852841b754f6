// `(1 + tanh(z)) / 2` is the logistic function of `2 z`, without the cancellation where tanh is near -1.
fn value_of(gate: f32, up: f32) -> f32 {
    let z = 0.7978845608 * gate * (1.0 + 0.044715 * gate * gate);
    return gated(gate, 2.0 * z) * up;
}
