//! Kernels over rows of f32: norms, activations, rotation, sums.
//!
//! Plain Rust that the compiler vectorises per table; sums have sixteen lanes and the tree of
//! [`sum_tree`](super::simd::sum_tree) in every table.

use super::math::{exp_sum, gelu_tanh, maximum, silu, tanh};
use super::simd::{LANES, Op, Simd, sum_tree};

/// `x[i]^2` summed: sixteen fused lanes, then the tree.
#[inline(always)]
fn sum_squares(x: &[f32]) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let (chunks, tail) = x.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, x) in lanes.iter_mut().zip(chunk) {
            *lane = x.mul_add(*x, *lane);
        }
    }
    for (lane, x) in lanes.iter_mut().zip(tail) {
        *lane = x.mul_add(*x, *lane);
    }
    sum_tree(lanes)
}

/// Each row of `x` over its root mean square, times `weight`.
pub(crate) struct RmsNorm<'a> {
    pub(crate) out: &'a mut [f32],
    pub(crate) x: &'a [f32],
    /// Row length.
    pub(crate) cols: usize,
    pub(crate) weight: Option<&'a [f32]>,
    pub(crate) eps: f32,
}

impl Op for RmsNorm<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for (out, x) in self.out.chunks_exact_mut(self.cols).zip(self.x.chunks_exact(self.cols)) {
            let scale = 1.0 / (sum_squares(x) / self.cols as f32 + self.eps).sqrt();
            match self.weight {
                Some(w) => out.iter_mut().zip(x).zip(w).for_each(|((y, x), w)| *y = x * scale * w),
                None => out.iter_mut().zip(x).for_each(|(y, x)| *y = x * scale),
            }
        }
    }
}

/// Softmax of a row in place. A NaN anywhere makes the whole row NaN.
pub(crate) struct Softmax<'a>(pub(crate) &'a mut [f32]);

impl Op for Softmax<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let peak = maximum(s, self.0);
        let scale = 1.0 / exp_sum(s, self.0, peak);
        self.0.iter_mut().for_each(|x| *x *= scale);
    }
}

/// A kernel on each element of one slice, in place.
pub(crate) enum Map<'a> {
    /// `x * factor`.
    Scale(&'a mut [f32], f32),
    /// `cap * tanh(x / cap)`.
    Softcap(&'a mut [f32], f32),
}

impl Op for Map<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        match self {
            Map::Scale(x, factor) => x.iter_mut().for_each(|x| *x *= factor),
            Map::Softcap(x, cap) => {
                let inverse = 1.0 / cap;
                x.iter_mut().for_each(|x| *x = cap * tanh(*x * inverse));
            }
        }
    }
}

/// A kernel on the elements of two slices; the result replaces the first.
pub(crate) struct Zip<'a> {
    pub(crate) kind: ZipKind,
    pub(crate) a: &'a mut [f32],
    pub(crate) b: &'a [f32],
}

/// What [`Zip`] computes.
#[derive(Clone, Copy)]
pub(crate) enum ZipKind {
    /// `a + b`.
    Add,
    /// `a * b`.
    Mul,
    /// `silu(a) * b`.
    SiluMul,
    /// `gelu_tanh(a) * b`.
    GeluMul,
}

impl Op for Zip<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let pairs = self.a.iter_mut().zip(self.b);
        match self.kind {
            ZipKind::Add => pairs.for_each(|(a, b)| *a += b),
            ZipKind::Mul => pairs.for_each(|(a, b)| *a *= b),
            ZipKind::SiluMul => pairs.for_each(|(a, b)| *a = silu(*a) * b),
            ZipKind::GeluMul => pairs.for_each(|(a, b)| *a = gelu_tanh(*a) * b),
        }
    }
}

/// Rotates each head of one row by the angles of its position.
pub(crate) struct Rope<'a> {
    /// Heads of `head_dim` values.
    pub(crate) row: &'a mut [f32],
    pub(crate) head_dim: usize,
    /// Cosines and sines of each pair.
    pub(crate) cos: &'a [f32],
    pub(crate) sin: &'a [f32],
    /// Pairs are `(i, i + pairs)`, else `(2 i, 2 i + 1)`.
    pub(crate) halves: bool,
}

impl Op for Rope<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let pairs = self.cos.len();
        let angles = || self.cos.iter().zip(self.sin);
        for head in self.row.chunks_exact_mut(self.head_dim) {
            let head = &mut head[..2 * pairs];
            if self.halves {
                let (first, second) = head.split_at_mut(pairs);
                first.iter_mut().zip(second).zip(angles()).for_each(|((x, y), (c, s))| rotate(x, y, *c, *s));
            } else {
                let (pairs, _) = head.as_chunks_mut::<2>();
                pairs.iter_mut().zip(angles()).for_each(|([x, y], (c, s))| rotate(x, y, *c, *s));
            }
        }
    }
}

/// Turns `(x, y)` by the angle with cosine `c` and sine `s`.
#[inline(always)]
fn rotate(x: &mut f32, y: &mut f32, c: f32, s: f32) {
    (*x, *y) = (*x * c - *y * s, *x * s + *y * c);
}
