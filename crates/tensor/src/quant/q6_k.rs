//! `Q6_K`: 6 bits around zero, 8-bit scales for 16. Layout: `block_q6_K` of GGML's `ggml-common.h`.

use super::{Block, MAX_HALF, QK_K};
use crate::DType;

/// 256 elements in 210 bytes: `x = d * scale * (q - 32)`, a scale of each 16.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Q6K {
    /// Bits 0..4: of each 128 elements, `i` (below 64) in the low nibble of byte `i`, `64 + i` in its high one.
    pub ql: [u8; QK_K / 2],
    /// Bits 4..6: of each 128 elements, `32 * k + i` in bits `2 * k..2 * k + 2` of byte `i` (below 32).
    pub qh: [u8; QK_K / 4],
    /// The scale of elements `16 * j..16 * j + 16`, signed.
    pub scales: [i8; QK_K / 16],
    /// The scale of the scales, a half.
    pub d: [u8; 2],
}

const _: () = assert!(size_of::<Q6K>() == 210);

impl Q6K {
    /// The scale of the scales.
    #[inline]
    #[must_use]
    pub fn scale(&self) -> f32 {
        super::half_to_f32(self.d)
    }

    /// Element `i` (below 256) before scaling, in `-32..32`.
    ///
    /// # Panics
    /// If `i` is 256 or more.
    #[inline]
    #[must_use]
    pub fn quant(&self, i: usize) -> i8 {
        let place = Place::of(i);
        let low = self.ql[place.low_byte] >> place.low_shift & 15;
        let high = self.qh[place.high_byte] >> place.high_shift & 3;
        (low | high << 4) as i8 - 32
    }
}

/// Where the bits of an element lie.
struct Place {
    low_byte: usize,
    low_shift: usize,
    high_byte: usize,
    high_shift: usize,
}

impl Place {
    #[inline]
    fn of(i: usize) -> Self {
        let (half, i) = (i / 128, i % 128);
        Self {
            low_byte: half * 64 + i % 64,
            low_shift: i / 64 * 4,
            high_byte: half * 32 + i % 32,
            high_shift: i / 32 * 2,
        }
    }
}

impl Block<QK_K> for Q6K {
    const DTYPE: DType = DType::Q6K;

    fn decode(&self, out: &mut [f32; QK_K]) {
        let d = self.scale();
        for (i, x) in out.iter_mut().enumerate() {
            *x = d * f32::from(self.scales[i / 16]) * f32::from(self.quant(i));
        }
    }

    fn encode(values: &[f32; QK_K]) -> Self {
        let subs = values.as_chunks::<16>().0;
        let ideal: [f32; QK_K / 16] =
            std::array::from_fn(|j| (super::signed_max(&subs[j]) / -32.0).clamp(-f32::MAX, f32::MAX));
        // The largest scale becomes -128, which has one step more than 127.
        let d = super::half_from_f32((super::signed_max(&ideal) / -128.0).clamp(-MAX_HALF, MAX_HALF));
        let mut block = Self { ql: [0; _], qh: [0; _], scales: [0; _], d };
        let unit = block.scale();
        block.scales = ideal.map(|scale| (scale * super::inverse(unit)).round() as i8);
        for (i, &x) in values.iter().enumerate() {
            let inverse = super::inverse(unit * f32::from(block.scales[i / 16]));
            let q = ((x * inverse).round().clamp(-32.0, 31.0) as i8 + 32) as u8;
            let place = Place::of(i);
            block.ql[place.low_byte] |= (q & 15) << place.low_shift;
            block.qh[place.high_byte] |= (q >> 4) << place.high_shift;
        }
        block
    }
}
