//! How far a backend may be from the oracle, by name.

use std::fmt;

/// A bound on the normalised mean square error, `sum (x - y)^2 / sum y^2`: blind to the scale of the data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// What the error comes from.
    pub name: &'static str,
    /// Largest error.
    pub nmse: f64,
}

impl Tolerance {
    /// The same f32 numbers: gathers, decoding, copies.
    pub const EXACT: Self = Self { name: "exact", nmse: 0.0 };
    /// f32 arithmetic in any order, correctly rounded functions or nearly so.
    pub const F32: Self = Self { name: "f32", nmse: 1e-11 };
    /// f32 angles: at position `p` they are off by about `p * 2^-24`.
    pub const ROPE: Self = Self { name: "rope", nmse: 1e-7 };
    /// Values that are rounded to f16 on the way: half a unit in the eleventh bit.
    pub const F16: Self = Self { name: "f16", nmse: 1e-6 };
    /// Values that are rounded to bf16 on the way: half a unit in the eighth bit.
    pub const BF16: Self = Self { name: "bf16", nmse: 2e-5 };
    /// Keys and values stored in blocks of 8 bits, where one that lies between two steps may take either.
    pub const Q8_0_ROWS: Self = Self { name: "q8_0 rows", nmse: 1e-5 };
    /// Activations rounded to 8 bits a block before they meet a quantized weight.
    pub const INT8_ACTIVATIONS: Self = Self { name: "int8 activations", nmse: 3e-4 };

    /// Checks `found` against `expected`; the error says by how much it is off and where it is worst.
    pub fn check(&self, expected: &[f64], found: &[f32]) -> Result<(), Mismatch> {
        assert_eq!(expected.len(), found.len(), "as many elements as expected");
        let off = |(e, f): (&f64, &f32)| (e - f64::from(*f)).powi(2);
        let error: f64 = expected.iter().zip(found).map(off).sum();
        let power: f64 = expected.iter().map(|e| e * e).sum();
        let nmse = if error == 0.0 { 0.0 } else { error / power };
        if nmse <= self.nmse {
            return Ok(());
        }
        let worst = |i: &usize| off((&expected[*i], &found[*i]));
        let index = (0..found.len()).max_by(|a, b| worst(a).total_cmp(&worst(b))).unwrap_or(0);
        Err(Mismatch { tolerance: *self, nmse, index, expected: expected[index], found: found[index] })
    }
}

/// A result outside its tolerance.
#[derive(Clone, Debug, PartialEq)]
pub struct Mismatch {
    /// The bound.
    pub tolerance: Tolerance,
    /// The error.
    pub nmse: f64,
    /// Element that is worst.
    pub index: usize,
    /// What the oracle says there.
    pub expected: f64,
    /// What the backend says there.
    pub found: f32,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tolerance, nmse, index, expected, found } = self;
        write!(f, "nmse {nmse:.2e} is over {:.0e} ({}); ", tolerance.nmse, tolerance.name)?;
        write!(f, "worst at {index}: expected {expected}, found {found}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compares_relative_to_the_size_of_the_data() {
        assert_eq!(Tolerance::EXACT.check(&[1.5, -2.0], &[1.5, -2.0]), Ok(()));
        assert!(Tolerance::F32.check(&[1000.0], &[1000.0001]).is_ok());
        let mismatch = Tolerance::F32.check(&[0.0, 1.0], &[0.0, 1.1]).unwrap_err();
        assert_eq!(mismatch.index, 1);
        assert!(
            mismatch.to_string().starts_with("nmse 1.00e-2 is over 1e-11 (f32); worst at 1"),
            "{mismatch}"
        );
    }

    #[test]
    fn nan_and_anything_off_zero_are_mismatches() {
        assert!(Tolerance::INT8_ACTIVATIONS.check(&[1.0], &[f32::NAN]).is_err());
        assert!(Tolerance::F32.check(&[0.0], &[1e-30]).is_err());
    }
}
