//! `Q5_1`: 5 bits above a minimum, a scale for 32. Layout: `block_q5_1` of GGML's `ggml-common.h`.

use super::{Block, QK};
use crate::DType;

/// 32 elements in 24 bytes: `x = d * q + m`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Q5_1 {
    /// The scale, a half.
    pub d: [u8; 2],
    /// The minimum, a half.
    pub m: [u8; 2],
    /// Bit 4 of element `i` is bit `i` of this `u32`.
    pub qh: [u8; 4],
    /// Bits 0..4: elements 0..16 in the low nibbles, 16..32 in the high ones.
    pub qs: [u8; QK / 2],
}

const _: () = assert!(size_of::<Q5_1>() == 24);

impl Q5_1 {
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

impl Block<QK> for Q5_1 {
    const DTYPE: DType = DType::Q5_1;

    fn decode(&self, out: &mut [f32; QK]) {
        let (d, m, high) = (self.scale(), self.min(), u32::from_le_bytes(self.qh));
        for (i, x) in out.iter_mut().enumerate() {
            let q = super::nibble(&self.qs, i) | ((high >> i & 1) as u8) << 4;
            *x = d * f32::from(q) + m;
        }
    }

    fn encode(values: &[f32; QK]) -> Self {
        let fit = super::affine::fit(values, 31);
        Self {
            d: super::half_from_f32(fit.scale),
            m: super::half_from_f32(fit.min),
            qh: super::pack_fifth_bits(&fit.q),
            qs: super::pack_nibbles(&fit.q),
        }
    }
}
