//! The dimensions of a tensor.

use std::fmt;

use crate::{Bytes, DType};

/// Dimensions that a tensor can have.
pub const MAX_DIMS: usize = 4;

/// One to four dimensions in the order of GGUF: the first is the length of a row, whose elements are
/// contiguous.
///
/// Every dimension is at least 1 and the number of elements fits a `usize`. Trailing dimensions of 1 are
/// not stored, so shapes that differ only in them are equal.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    dims: [usize; MAX_DIMS],
}

/// Why dimensions are no [`Shape`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// Not one to four dimensions.
    #[error("{found} dimensions, expected 1 to {MAX_DIMS}")]
    Dims {
        /// Dimensions given.
        found: usize,
    },
    /// A dimension of length 0.
    #[error("dimension {index} is 0")]
    Zero {
        /// Which dimension, from 0.
        index: usize,
    },
    /// The product of the dimensions fits no `usize`.
    #[error("the number of elements overflows")]
    Overflow,
}

impl Shape {
    /// One element.
    pub const SCALAR: Self = Self { dims: [1; MAX_DIMS] };

    /// The shape with these dimensions, row length first.
    ///
    /// # Errors
    /// For no or more than four dimensions, for a dimension of 0, and where the product overflows.
    pub fn new(dims: &[usize]) -> Result<Self, ShapeError> {
        if dims.is_empty() || dims.len() > MAX_DIMS {
            return Err(ShapeError::Dims { found: dims.len() });
        }
        if let Some(index) = dims.iter().position(|&dim| dim == 0) {
            return Err(ShapeError::Zero { index });
        }
        dims.iter().try_fold(1usize, |n, &dim| n.checked_mul(dim)).ok_or(ShapeError::Overflow)?;
        let mut shape = Self::SCALAR;
        shape.dims[..dims.len()].copy_from_slice(dims);
        Ok(shape)
    }

    /// All four dimensions, 1 where there is none.
    #[must_use]
    pub const fn ne(&self) -> [usize; MAX_DIMS] {
        self.dims
    }

    /// The dimensions up to the last that isn't 1; one for a scalar.
    #[must_use]
    pub fn dims(&self) -> &[usize] {
        let n = self.dims.iter().rposition(|&dim| dim != 1).map_or(1, |last| last + 1);
        &self.dims[..n]
    }

    /// Elements in a row: the first dimension.
    #[must_use]
    pub const fn row_len(&self) -> usize {
        self.dims[0]
    }

    /// Rows: the product of all dimensions but the first.
    #[must_use]
    pub const fn n_rows(&self) -> usize {
        self.dims[1] * self.dims[2] * self.dims[3]
    }

    /// Elements: the product of the dimensions.
    #[must_use]
    pub const fn n_elements(&self) -> usize {
        self.row_len() * self.n_rows()
    }

    /// Bytes of a contiguous tensor; `None` where a row is no whole number of blocks, or on overflow.
    #[must_use]
    pub fn nbytes(&self, dtype: DType) -> Option<Bytes> {
        dtype.row_bytes(self.row_len())?.checked_mul(self.n_rows() as u64)
    }
}

impl TryFrom<&[usize]> for Shape {
    type Error = ShapeError;

    fn try_from(dims: &[usize]) -> Result<Self, ShapeError> {
        Self::new(dims)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.dims[0])?;
        self.dims()[1..].iter().try_for_each(|dim| write!(f, " x {dim}"))
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shape({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailing_ones_make_no_difference() {
        let shape = Shape::new(&[64, 48, 1, 1]).unwrap();
        assert_eq!(shape, Shape::new(&[64, 48]).unwrap());
        assert_eq!(shape.dims(), [64, 48]);
        assert_eq!(shape.to_string(), "64 x 48");
        assert_eq!((shape.row_len(), shape.n_rows(), shape.n_elements()), (64, 48, 3072));
        assert_eq!(Shape::new(&[1]).unwrap().dims(), [1]);
    }

    #[test]
    fn impossible_dimensions_are_refused() {
        assert_eq!(Shape::new(&[]), Err(ShapeError::Dims { found: 0 }));
        assert_eq!(Shape::new(&[1; 5]), Err(ShapeError::Dims { found: 5 }));
        assert_eq!(Shape::new(&[4, 0]), Err(ShapeError::Zero { index: 1 }));
        assert_eq!(Shape::new(&[1 << 32, 1 << 32]), Err(ShapeError::Overflow));
    }

    #[test]
    fn bytes_follow_the_rows() {
        let shape = Shape::new(&[256, 3]).unwrap();
        assert_eq!(shape.nbytes(DType::Q6K), Some(Bytes::new(630)));
        assert_eq!(Shape::new(&[64, 4]).unwrap().nbytes(DType::Q6K), None);
        assert_eq!(Shape::new(&[usize::MAX]).unwrap().nbytes(DType::F32), None);
    }
}
