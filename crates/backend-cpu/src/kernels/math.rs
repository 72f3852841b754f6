//! Elementary functions, one definition for every instruction set.
//!
//! Plain Rust on one f32 with fused multiply-adds: a kernel that maps a slice is vectorised by the compiler
//! with the instructions of its table, and the bits stay those of this code.

use super::simd::{LANES, Simd, sum_tree};

/// 1.5 * 2^23: adding it rounds to the nearest integer, ties to even, and leaves that in the low bits.
pub(crate) const ROUND: f32 = 12_582_912.0;

/// `exp(x)` within 1.2 ulp: 0 below the subnormal range, infinity above the range, NaN stays NaN.
///
/// `x = n ln 2 + r` with `|r| <= ln 2 / 2` in two steps (Cody and Waite), a minimax polynomial in `r`, then a
/// multiplication by `2^n` in two factors, which rounds subnormal results once.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    const LN2_HIGH: f32 = 0.693_145_75;
    const LN2_LOW: f32 = 1.428_606_8e-6;
    // The comparisons leave a NaN in place.
    let x = if x < -105.0 { -105.0 } else { x };
    let x = if x > 89.0 { 89.0 } else { x };
    let shifted = x.mul_add(std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = n.mul_add(-LN2_LOW, n.mul_add(-LN2_HIGH, x));
    let mut p = 1.987_569_1e-4f32;
    for c in [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 0.166_666_65, 0.5] {
        p = p.mul_add(r, c);
    }
    let p = p.mul_add(r * r, r) + 1.0;
    let n = shifted.to_bits().wrapping_sub(ROUND.to_bits()) as i32;
    let half = n >> 1;
    p * power_of_two(half) * power_of_two(n.wrapping_sub(half))
}

/// `2^n` for `-126 <= n <= 127`; anything else gives some f32.
#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

/// `tanh(x)` within 4 ulp.
#[inline(always)]
pub(crate) fn tanh(x: f32) -> f32 {
    let (a, square) = (x.abs(), x * x);
    // Taylor's series: the next term is below 2^-25 of the result.
    let mut p = -8.863_235e-3f32;
    for c in [2.186_949e-2, -5.396_825_4e-2, 0.133_333_33, -0.333_333_33] {
        p = p.mul_add(square, c);
    }
    let small = (p * square).mul_add(x, x);
    let large = (1.0 - 2.0 / (exp(2.0 * a) + 1.0)).copysign(x);
    if a < 0.35 { small } else { large }
}

/// `x / (1 + exp(-x))`.
#[inline(always)]
pub(crate) fn silu(x: f32) -> f32 {
    x / (1.0 + exp(-x))
}

/// GELU with the tanh approximation, `x * 0.5 * (1 + tanh(u))` with `u = sqrt(2 / pi) (x + 0.044715 x^3)`, in the
/// equal form `x / (1 + exp(-2 u))`.
#[inline(always)]
pub(crate) fn gelu_tanh(x: f32) -> f32 {
    const MINUS_TWO_SQRT_2_OVER_PI: f32 = -1.595_769;
    let u = MINUS_TWO_SQRT_2_OVER_PI * (x * x * 0.044_715).mul_add(x, x);
    x / (1.0 + exp(u))
}

/// The largest value, NaN apart; minus infinity if there is none.
#[inline(always)]
pub(crate) fn maximum<S: Simd>(s: S, x: &[f32]) -> f32 {
    let (chunks, tail) = x.as_chunks::<LANES>();
    let mut peaks = s.splat(f32::NEG_INFINITY);
    for chunk in chunks {
        peaks = s.max(s.load_array(chunk), peaks);
    }
    let larger = |peak: f32, &x: &f32| if x > peak { x } else { peak };
    s.lanes(peaks).iter().chain(tail).fold(f32::NEG_INFINITY, larger)
}

/// Replaces each value by `exp(x - peak)` and returns their sum: sixteen lanes, then the tree.
#[inline(always)]
pub(crate) fn exp_sum<S: Simd>(s: S, x: &mut [f32], peak: f32) -> f32 {
    x.iter_mut().for_each(|x| *x = exp(*x - peak));
    let (chunks, tail) = x.as_chunks::<LANES>();
    let mut sums = s.splat(0.0);
    for chunk in chunks {
        sums = s.add(sums, s.load_array(chunk));
    }
    let mut sums = s.lanes(sums);
    sums.iter_mut().zip(tail).for_each(|(sum, x)| *sum += x);
    sum_tree(sums)
}
