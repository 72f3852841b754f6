fn value_of(gate: f32, up: f32) -> f32 {
    return gated(gate, gate) * up;
}
