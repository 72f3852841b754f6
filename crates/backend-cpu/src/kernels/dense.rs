//! Float weights times f32 activations, and conversions of float rows.
//!
//! Every output is sixteen fused lanes along `k` (the tail padded with zeros), summed by the fixed tree.
#![allow(unsafe_code, reason = "pointer kernels; `DenseMatMul` states the contract")]

use super::share::Share;
use super::simd::{LANES, Op, Simd};
use std::marker::PhantomData;
use std::ops::Range;

/// A float type of weights, keys and values.
pub(crate) trait Float: Copy {
    /// Its bits.
    type Bits: Copy + Default;
    /// Reads sixteen values.
    ///
    /// # Safety
    /// `p` must be readable for sixteen values.
    unsafe fn load<S: Simd>(s: S, p: *const Self::Bits) -> S::F;
}

/// IEEE single precision.
#[derive(Clone, Copy)]
pub(crate) struct F32;
/// IEEE half precision.
#[derive(Clone, Copy)]
pub(crate) struct F16;
/// The upper half of an f32.
#[derive(Clone, Copy)]
pub(crate) struct Bf16;

macro_rules! float {
    ($name:ident, $bits:ty, $load:ident) => {
        impl Float for $name {
            type Bits = $bits;
            #[inline(always)]
            unsafe fn load<S: Simd>(s: S, p: *const $bits) -> S::F {
                // SAFETY: the caller's promise.
                unsafe { s.$load(p) }
            }
        }
    };
}
float!(F32, f32, load);
float!(F16, u16, load_f16);
float!(Bf16, u16, load_bf16);

/// Reads sixteen values, or `count` of them and zeros.
///
/// # Safety
/// `p` must be readable for that many values.
#[inline(always)]
unsafe fn load_some<S: Simd, W: Float>(s: S, p: *const W::Bits, count: usize) -> S::F {
    // SAFETY: the caller's promise; a tail goes through a zeroed buffer.
    unsafe {
        if count >= LANES {
            return W::load(s, p);
        }
        let mut lanes = [W::Bits::default(); LANES];
        std::ptr::copy_nonoverlapping(p, lanes.as_mut_ptr(), count);
        W::load(s, lanes.as_ptr())
    }
}

/// `out[token * stride + row]` for some rows of float weights and all tokens.
#[derive(Clone)]
pub(crate) struct DenseMatMul<'a> {
    /// `[rows][k]`, aligned as its type.
    pub(crate) weights: *const u8,
    pub(crate) k: usize,
    pub(crate) rows: Share<'a>,
    pub(crate) tokens: usize,
    /// `[tokens][k]`.
    pub(crate) x: *const f32,
    pub(crate) out: *mut f32,
    pub(crate) stride: usize,
}

/// A [`DenseMatMul`] with weights of one type.
pub(crate) struct FloatMatMul<'a, W>(pub(crate) DenseMatMul<'a>, pub(crate) PhantomData<W>);

/// Bytes of weights that stay in the cache while all tokens pass.
const BLOCK: usize = 512 << 10;

impl<W: Float> Op for FloatMatMul<'_, W> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let m = &self.0;
        let (most_rows, most_tokens) = S::DENSE_TILE;
        let block = (BLOCK / (m.k * size_of::<W::Bits>()).max(1)).max(1).next_multiple_of(LANES);
        let mut share = m.rows.clone();
        while let Some(Range { start: first, end }) = share.next(block) {
            let mut token = 0;
            while token < m.tokens {
                let tokens = match most_tokens.min(m.tokens - token) {
                    6.. => 6,
                    4.. => 4,
                    2.. => 2,
                    _ => 1,
                };
                let mut row = first;
                while row < end {
                    let rows = if end - row >= most_rows { most_rows } else { 1 };
                    match (rows, tokens) {
                        (4, 6) => s.run(Tile::<W, 4, 6> { m, row, token, float: PhantomData }),
                        (4, 4) => s.run(Tile::<W, 4, 4> { m, row, token, float: PhantomData }),
                        (4, 2) => s.run(Tile::<W, 4, 2> { m, row, token, float: PhantomData }),
                        (4, _) => s.run(Tile::<W, 4, 1> { m, row, token, float: PhantomData }),
                        (2, 2) => s.run(Tile::<W, 2, 2> { m, row, token, float: PhantomData }),
                        (2, _) => s.run(Tile::<W, 2, 1> { m, row, token, float: PhantomData }),
                        (_, 6) => s.run(Tile::<W, 1, 6> { m, row, token, float: PhantomData }),
                        (_, 4) => s.run(Tile::<W, 1, 4> { m, row, token, float: PhantomData }),
                        (_, 2) => s.run(Tile::<W, 1, 2> { m, row, token, float: PhantomData }),
                        _ => s.run(Tile::<W, 1, 1> { m, row, token, float: PhantomData }),
                    }
                    row += rows;
                }
                token += tokens;
            }
        }
    }
}

/// `R` rows times `T` tokens.
struct Tile<'a, W, const R: usize, const T: usize> {
    m: &'a DenseMatMul<'a>,
    row: usize,
    token: usize,
    float: PhantomData<W>,
}

impl<W: Float, const R: usize, const T: usize> Op for Tile<'_, W, R, T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let m = self.m;
        let mut acc = [[s.splat(0.0); T]; R];
        // SAFETY: `DenseMatMul` promises the rows, the activations and the outputs.
        unsafe {
            let weights = m.weights.cast::<W::Bits>().add(self.row * m.k);
            let x = m.x.add(self.token * m.k);
            let whole = m.k / LANES * LANES;
            for at in (0..whole).step_by(LANES) {
                if T == 1 {
                    // One token comes by once; the rows are followed by those of the next tile.
                    for r in R..2 * R {
                        s.prefetch(weights.wrapping_add(r * m.k + at).cast());
                    }
                }
                self.step(s, &mut acc, weights.add(at), x.add(at), LANES);
            }
            if whole < m.k {
                self.step(s, &mut acc, weights.add(whole), x.add(whole), m.k - whole);
            }
            for (r, acc) in acc.iter().enumerate() {
                for (t, &acc) in acc.iter().enumerate() {
                    m.out.add((self.token + t) * m.stride + self.row + r).write(s.sum(acc));
                }
            }
        }
    }
}

impl<W: Float, const R: usize, const T: usize> Tile<'_, W, R, T> {
    /// Adds the products of `count` values of each row and token.
    ///
    /// # Safety
    /// They must be readable.
    #[inline(always)]
    unsafe fn step<S: Simd>(
        &self,
        s: S,
        acc: &mut [[S::F; T]; R],
        weights: *const W::Bits,
        x: *const f32,
        count: usize,
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            let mut ws = [s.splat(0.0); R];
            for (r, w) in ws.iter_mut().enumerate() {
                *w = load_some::<S, W>(s, weights.add(r * self.m.k), count);
            }
            for t in 0..T {
                let x = load_some::<S, F32>(s, x.add(t * self.m.k), count);
                for (acc, w) in acc.iter_mut().zip(ws) {
                    acc[t] = s.fma(w, x, acc[t]);
                }
            }
        }
    }
}

/// Rounds f32 to f16, nearest even.
pub(crate) struct ToF16<'a> {
    pub(crate) out: &'a mut [u16],
    pub(crate) x: &'a [f32],
}

impl Op for ToF16<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (out, out_tail) = self.out.as_chunks_mut::<LANES>();
        let (x, x_tail) = self.x.as_chunks::<LANES>();
        for (out, x) in out.iter_mut().zip(x) {
            // SAFETY: both arrays hold sixteen values.
            unsafe { s.store_f16(out.as_mut_ptr(), s.load(x.as_ptr())) };
        }
        for (out, x) in out_tail.iter_mut().zip(x_tail) {
            *out = half::f16::from_f32(*x).to_bits();
        }
    }
}
