//! `Q5_K`: 5 bits, 6-bit scales and minima for 32. Layout: `block_q5_K` of GGML's `ggml-common.h`.

use super::{Block, QK, QK_K, k_scales};
use crate::DType;

/// 256 elements in 176 bytes: `x = d * scale * q - dmin * min`, scale and minimum of each 32.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Q5K {
    /// The scale of the scales, a half.
    pub d: [u8; 2],
    /// The scale of the minima, a half.
    pub dmin: [u8; 2],
    /// Scales and minima, packed as [`super::scale_min`] reads them.
    pub scales: [u8; 12],
    /// Bit 4 of element `32 * j + i` is bit `j` of byte `i`.
    pub qh: [u8; QK_K / 8],
    /// Bits 0..4: 32 bytes for each 64 elements, the first 32 in the low nibbles.
    pub qs: [u8; QK_K / 2],
}

const _: () = assert!(size_of::<Q5K>() == 176);

impl Q5K {
    /// The scale of the scales.
    #[inline]
    #[must_use]
    pub fn scale(&self) -> f32 {
        super::half_to_f32(self.d)
    }

    /// The scale of the minima.
    #[inline]
    #[must_use]
    pub fn min_scale(&self) -> f32 {
        super::half_to_f32(self.dmin)
    }

    /// Scale and minimum of the 32 elements from `32 * j`, each below 64.
    ///
    /// # Panics
    /// If `j` is 8 or more.
    #[inline]
    #[must_use]
    pub fn scale_min(&self, j: usize) -> (u8, u8) {
        k_scales::scale_min(&self.scales, j)
    }
}

impl Block<QK_K> for Q5K {
    const DTYPE: DType = DType::Q5K;

    fn decode(&self, out: &mut [f32; QK_K]) {
        for (j, out) in out.as_chunks_mut::<QK>().0.iter_mut().enumerate() {
            let (scale, min) = self.scale_min(j);
            let (d, m) = (self.scale() * f32::from(scale), self.min_scale() * f32::from(min));
            let qs = &self.qs[j / 2 * QK..][..QK];
            for (x, (q, high)) in out.iter_mut().zip(qs.iter().zip(&self.qh)) {
                let q = q >> (j % 2 * 4) & 15 | (high >> j & 1) << 4;
                *x = d * f32::from(q) - m;
            }
        }
    }

    fn encode(values: &[f32; QK_K]) -> Self {
        let fit = k_scales::fit(values, 31);
        let qs = std::array::from_fn(|i| {
            let first = i / QK * 2 * QK + i % QK;
            fit.q[first] & 15 | fit.q[first + QK] << 4
        });
        let qh = std::array::from_fn(|i| (0..8).fold(0, |bits, j| bits | (fit.q[QK * j + i] >> 4) << j));
        Self { d: fit.d, dmin: fit.dmin, scales: fit.scales, qh, qs }
    }
}
