//! `Q4_0`: 4 bits around zero, a scale for 32. Layout: `block_q4_0` of GGML's `ggml-common.h`.

use super::{Block, QK};
use crate::DType;

/// 32 elements in 18 bytes: `x = d * (q - 8)`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Q4_0 {
    /// The scale, a half.
    pub d: [u8; 2],
    /// Elements 0..16 in the low nibbles, 16..32 in the high ones.
    pub qs: [u8; QK / 2],
}

const _: () = assert!(size_of::<Q4_0>() == 18);

impl Q4_0 {
    /// The scale.
    #[inline]
    #[must_use]
    pub fn scale(&self) -> f32 {
        super::half_to_f32(self.d)
    }
}

impl Block<QK> for Q4_0 {
    const DTYPE: DType = DType::Q4_0;

    fn decode(&self, out: &mut [f32; QK]) {
        let d = self.scale();
        for (i, x) in out.iter_mut().enumerate() {
            *x = d * (f32::from(super::nibble(&self.qs, i)) - 8.0);
        }
    }

    fn encode(values: &[f32; QK]) -> Self {
        let d = super::signed_scale(super::signed_max(values), 8.0);
        let id = super::inverse(d);
        let q = values.map(|x| ((x * id + 8.5) as u8).min(15));
        Self { d: super::half_from_f32(d), qs: super::pack_nibbles(&q) }
    }
}
