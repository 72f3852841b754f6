//! `Q8_0`: 8 bits around zero, a scale for 32. Layout: `block_q8_0` of GGML's `ggml-common.h`.

use super::{Block, QK};
use crate::DType;

/// 32 elements in 34 bytes: `x = q * d`, `q` signed.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Q8_0 {
    /// The scale, a half.
    pub d: [u8; 2],
    /// The elements in order.
    pub qs: [i8; QK],
}

const _: () = assert!(size_of::<Q8_0>() == 34);

impl Q8_0 {
    /// The scale.
    #[inline]
    #[must_use]
    pub fn scale(&self) -> f32 {
        super::half_to_f32(self.d)
    }
}

impl Block<QK> for Q8_0 {
    const DTYPE: DType = DType::Q8_0;

    fn decode(&self, out: &mut [f32; QK]) {
        let d = self.scale();
        for (x, &q) in out.iter_mut().zip(&self.qs) {
            *x = f32::from(q) * d;
        }
    }

    fn encode(values: &[f32; QK]) -> Self {
        let d = (super::signed_max(values).abs() / 127.0).min(super::MAX_HALF);
        let id = super::inverse(d);
        Self { d: super::half_from_f32(d), qs: values.map(|x| (x * id).round() as i8) }
    }
}
