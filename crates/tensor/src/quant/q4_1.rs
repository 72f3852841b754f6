//! `Q4_1`: 4 bits above a minimum, a scale for 32. Layout: `block_q4_1` of GGML's `ggml-common.h`.

use super::{Block, QK};
use crate::DType;

/// 32 elements in 20 bytes: `x = d * q + m`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Q4_1 {
    /// The scale, a half.
    pub d: [u8; 2],
    /// The minimum, a half.
    pub m: [u8; 2],
    /// Elements 0..16 in the low nibbles, 16..32 in the high ones.
    pub qs: [u8; QK / 2],
}

const _: () = assert!(size_of::<Q4_1>() == 20);

impl Q4_1 {
    /// The scale.
    #[inline]
    #[must_use]
    pub fn scale(&self) -> f32 {
        super::half_to_f32(self.d)
    }

    /// The minimum.
    #[inline]
    #[must_use]
    pub fn min(&self) -> f32 {
        super::half_to_f32(self.m)
    }
}

impl Block<QK> for Q4_1 {
    const DTYPE: DType = DType::Q4_1;

    fn decode(&self, out: &mut [f32; QK]) {
        let (d, m) = (self.scale(), self.min());
        for (i, x) in out.iter_mut().enumerate() {
            *x = d * f32::from(super::nibble(&self.qs, i)) + m;
        }
    }

    fn encode(values: &[f32; QK]) -> Self {
        let fit = super::affine::fit(values, 15);
        Self {
            d: super::half_from_f32(fit.scale),
            m: super::half_from_f32(fit.min),
            qs: super::pack_nibbles(&fit.q),
        }
    }
}
