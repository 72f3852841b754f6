// The hyperbolic tangent to a few units in the last place: the builtin may be as inexact as 2^-11, or NaN for large
// arguments. Near 0 the polynomial of Cephes' `tanhf`.
fn tanh_of(x: f32) -> f32 {
    let size = abs(x);
    if (size < 0.625) {
        let z = x * x;
        let high = (-5.70498872745e-3 * z + 2.06390887954e-2) * z - 5.37397155531e-2;
        return ((high * z + 1.33314422036e-1) * z - 3.33332819422e-1) * z * x + x;
    }
    // 1 in single precision from 9.1 on. NaN goes on to the quotient.
    if (size > 10.0) {
        return sign(x);
    }
    let far = 1.0 - 2.0 / (exp(2.0 * size) + 1.0);
    return select(far, -far, x < 0.0);
}
