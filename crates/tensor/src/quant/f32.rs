//! `F32`: IEEE 754 single precision, little-endian.

use super::Block;
use crate::DType;

/// A single as stored: 4 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct F32(pub [u8; 4]);

const _: () = assert!(size_of::<F32>() == 4);

impl Block<1> for F32 {
    const DTYPE: DType = DType::F32;

    #[inline]
    fn decode(&self, out: &mut [f32; 1]) {
        out[0] = f32::from_le_bytes(self.0);
    }

    fn encode(values: &[f32; 1]) -> Self {
        Self(values[0].to_le_bytes())
    }
}
