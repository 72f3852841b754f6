//! Block formats: one file a format, the same items in each.
//!
//! A block is a `repr(C)` struct of little-endian byte arrays with alignment 1, so that a mapped file can be
//! viewed as blocks wherever they begin. `decode` multiplies and adds in the order of the reference, so its
//! numbers are the reference's bit for bit.

mod affine;
mod bf16;
mod f16;
mod f32;
mod k_scales;
mod q4_0;
mod q4_1;
mod q4_k;
mod q5_0;
mod q5_1;
mod q5_k;
mod q6_k;
mod q8_0;

pub use bf16::BF16;
pub use f16::F16;
pub use f32::F32;
pub use k_scales::scale_min;
pub use q4_0::Q4_0;
pub use q4_1::Q4_1;
pub use q4_k::Q4K;
pub use q5_0::Q5_0;
pub use q5_1::Q5_1;
pub use q5_k::Q5K;
pub use q6_k::Q6K;
pub use q8_0::Q8_0;

use crate::DType;
use crate::cast::Pod;

/// Elements in a block of the simple formats.
pub const QK: usize = 32;
/// Elements in a super-block of the K formats.
pub const QK_K: usize = 256;

/// A block of `N` elements that share scales.
pub trait Block<const N: usize>: Pod {
    /// The type whose rows are these blocks.
    const DTYPE: DType;

    /// Writes the block's values.
    fn decode(&self, out: &mut [f32; N]);

    /// The block nearest to `values`, as far as a single pass finds it.
    ///
    /// Numbers that the format can't hold saturate at its largest; a NaN becomes some number of the block's
    /// range, except in `F32`, `F16` and `BF16`, which keep it.
    fn encode(values: &[f32; N]) -> Self;
}

/// A stored half as `f32`.
#[inline]
fn half_to_f32(bits: [u8; 2]) -> f32 {
    half::f16::from_le_bytes(bits).to_f32_const()
}

/// `x` as a stored half. Saturates: an infinite scale would turn the zeros of its block into NaN.
fn half_from_f32(x: f32) -> [u8; 2] {
    half::f16::from_f32_const(x.clamp(-MAX_HALF, MAX_HALF)).to_le_bytes()
}

/// The largest finite half.
const MAX_HALF: f32 = 65504.0;

/// `1 / scale`, or 0 for a scale of 0, so that a block of zeros encodes as zeros.
fn inverse(scale: f32) -> f32 {
    if scale == 0.0 { 0.0 } else { 1.0 / scale }
}

/// The value with the largest magnitude, its sign kept; the first of equals.
fn signed_max(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |max: f32, &x| if x.abs() > max.abs() { x } else { max })
}

/// The scale that maps `extreme` to `-levels`, finite for every input.
fn signed_scale(extreme: f32, levels: f32) -> f32 {
    (extreme / -levels).clamp(-MAX_HALF, MAX_HALF)
}

/// The smallest and the largest value; zeros where none is a number.
fn min_max(values: &[f32]) -> (f32, f32) {
    let (min, max) =
        values.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(lo, hi), &x| (lo.min(x), hi.max(x)));
    if min > max { (0.0, 0.0) } else { (min.clamp(-MAX_HALF, MAX_HALF), max.clamp(-f32::MAX, f32::MAX)) }
}

/// Packs 32 numbers below 16, the first 16 into the low nibbles.
fn pack_nibbles(q: &[u8; QK]) -> [u8; QK / 2] {
    std::array::from_fn(|i| (q[i] & 0x0f) | (q[i + QK / 2] << 4))
}

/// Element `i` of 32 packed as [`pack_nibbles`] does.
#[inline]
fn nibble(qs: &[u8; QK / 2], i: usize) -> u8 {
    if i < QK / 2 { qs[i] & 0x0f } else { qs[i - QK / 2] >> 4 }
}

/// Bit 4 of 32 numbers, as a little-endian `u32` with the first in its lowest bit.
fn pack_fifth_bits(q: &[u8; QK]) -> [u8; 4] {
    let bits = q.iter().enumerate().fold(0u32, |bits, (i, &x)| bits | (u32::from(x >> 4 & 1) << i));
    bits.to_le_bytes()
}
