//! `F16`: IEEE 754 half precision, little-endian.

use super::Block;
use crate::DType;

/// A half as stored: 2 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct F16(pub [u8; 2]);

const _: () = assert!(size_of::<F16>() == 2);

impl Block<1> for F16 {
    const DTYPE: DType = DType::F16;

    #[inline]
    fn decode(&self, out: &mut [f32; 1]) {
        out[0] = super::half_to_f32(self.0);
    }

    /// Rounds to the nearest half, ties to even; beyond the largest half is infinity, as IEEE 754 has it.
    fn encode(values: &[f32; 1]) -> Self {
        Self(half::f16::from_f32_const(values[0]).to_le_bytes())
    }
}
