//! The frequencies of a rotary embedding, for a kernel without double precision.

use std::f64::consts::TAU;

use minfer_graph::RopeSpec;

use super::params::RopeParams;

/// Powers `r^(2^b)` that the kernel knows: enough for this many bits of a pair's number.
const POWERS: usize = 12;

impl RopeParams {
    /// Parameters with the head and the frequencies of `spec`, and zeros. Pair `i` turns by `unit * r^i` of a whole turn
    /// for each position, where `r` is `base^(-2 / n_rot)`; the kernel gets `unit` and each `r^(2^b)` with 32 bits.
    pub(crate) fn new(spec: &RopeSpec) -> Self {
        let mut params: Self = bytemuck::Zeroable::zeroed();
        params.head_dim = u32::try_from(spec.head_dim).unwrap_or(u32::MAX);
        params.n_rot = u32::try_from(spec.n_rot).unwrap_or(u32::MAX);
        let pairs = spec.n_rot / 2;
        for bit in 0..POWERS {
            // The kernel asks for no power beyond the number of pairs, and such a one may be too small.
            let power = if 1 << bit < pairs { (1 << bit) as f64 / pairs as f64 } else { 0.0 };
            let value = f64::from(spec.base).powf(-power);
            (params.mantissas[bit], params.exponents[bit]) = normalized(value);
        }
        (params.unit, params.exponents[POWERS]) = normalized(f64::from(spec.scale) / TAU);
        params
    }

    /// Whether the kernel can number the pairs of a head.
    pub(crate) fn fits(spec: &RopeSpec) -> bool {
        spec.n_rot / 2 <= 1 << POWERS
    }
}

/// `(m, e)` with `m * 2^(e - 32)` next to `x` and the upper bit of `m` set; 0 for what isn't positive.
fn normalized(x: f64) -> (u32, i8) {
    if !(x > 0.0 && x.is_finite()) {
        return (0, 0);
    }
    let exponent = x.log2().floor() as i32 + 1;
    let mantissa = (x * 2f64.powi(32 - exponent)).round();
    // Rounding, of the logarithm or of the mantissa, may have reached the next power of two.
    let (mantissa, exponent) = if mantissa > f64::from(u32::MAX) {
        ((mantissa / 2.0).round(), exponent + 1)
    } else if mantissa < f64::from(1u32 << 31) {
        (mantissa * 2.0, exponent - 1)
    } else {
        (mantissa, exponent)
    };
    (mantissa as u32, i8::try_from(exponent).unwrap_or(if exponent < 0 { i8::MIN } else { i8::MAX }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_its_mantissa_and_exponent() {
        for x in [1.0, 0.5, 2.0, 1.0 / TAU, 0.9999999999999999, 1e-7, 3.5, 1.0 / 3.0] {
            let (mantissa, exponent) = normalized(x);
            let back = f64::from(mantissa) * 2f64.powi(i32::from(exponent) - 32);
            assert!((back / x - 1.0).abs() <= 2f64.powi(-32), "{x}: {mantissa}, {exponent}");
            assert!(mantissa >> 31 == 1, "{x}: {mantissa:x}");
        }
        assert_eq!(normalized(0.0), (0, 0));
        assert_eq!(normalized(f64::NAN), (0, 0));
    }
}
