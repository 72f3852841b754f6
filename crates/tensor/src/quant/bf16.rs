//! `BF16`: the upper 16 bits of a single, little-endian.

use super::Block;
use crate::DType;

/// A bfloat16 as stored: 2 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BF16(pub [u8; 2]);

const _: () = assert!(size_of::<BF16>() == 2);

impl Block<1> for BF16 {
    const DTYPE: DType = DType::BF16;

    #[inline]
    fn decode(&self, out: &mut [f32; 1]) {
        out[0] = f32::from_bits(u32::from(u16::from_le_bytes(self.0)) << 16);
    }

    /// Rounds to the nearest, ties to even.
    fn encode(values: &[f32; 1]) -> Self {
        Self(half::bf16::from_f32(values[0]).to_le_bytes())
    }
}
