//! `Q5_0`: 5 bits around zero, a scale for 32. Layout: `block_q5_0` of GGML's `ggml-common.h`.

use super::{Block, QK};
use crate::DType;

/// 32 elements in 22 bytes: `x = d * (q - 16)`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Q5_0 {
    /// The scale, a half.
    pub d: [u8; 2],
    /// Bit 4 of element `i` is bit `i` of this `u32`.
    pub qh: [u8; 4],
    /// Bits 0..4: elements 0..16 in the low nibbles, 16..32 in the high ones.
    pub qs: [u8; QK / 2],
}

const _: () = assert!(size_of::<Q5_0>() == 22);

impl Q5_0 {
    /// The scale.
    #[inline]
    #[must_use]
    pub fn scale(&self) -> f32 {
        super::half_to_f32(self.d)
    }
}

impl Block<QK> for Q5_0 {
    const DTYPE: DType = DType::Q5_0;

    fn decode(&self, out: &mut [f32; QK]) {
        let (d, high) = (self.scale(), u32::from_le_bytes(self.qh));
        for (i, x) in out.iter_mut().enumerate() {
            let q = super::nibble(&self.qs, i) | ((high >> i & 1) as u8) << 4;
            *x = d * (f32::from(q) - 16.0);
        }
    }

    fn encode(values: &[f32; QK]) -> Self {
        let d = super::signed_scale(super::signed_max(values), 16.0);
        let id = super::inverse(d);
        let q = values.map(|x| ((x * id + 16.5) as u8).min(31));
        Self { d: super::half_from_f32(d), qh: super::pack_fifth_bits(&q), qs: super::pack_nibbles(&q) }
    }
}
