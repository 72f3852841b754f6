// `x` times the logistic function of `z`. The argument of `exp` is bounded: an infinity would make NaN of some drivers'
// quotients, and beyond the bound the product is 0 but for a rounding error.
fn gated(x: f32, z: f32) -> f32 {
    return x / (1.0 + exp(min(-z, 88.0)));
}
