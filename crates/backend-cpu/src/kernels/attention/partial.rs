//! The partial results of one chunk of keys.
#![allow(unsafe_code, reason = "pointer kernels; `Attention` states the contract")]

use super::super::math::{exp, exp_sum, maximum, tanh};
use super::super::simd::{LANES, Op, Simd};
use super::{Attention, BLOCK, CHUNK, Cached, Group, KEYS, QUERIES, SIDE, clear, hull};
use std::marker::PhantomData;
use std::ops::Range;

/// Partial results of a group of queries for one chunk.
pub(super) struct Partial<'a, C> {
    pub(super) group: Group<'a>,
    pub(super) chunk: usize,
    /// `[count][partial_len]`.
    pub(super) out: *mut f32,
    /// Scores `[QUERIES][BLOCK]`, then keys as `[head_dim][KEYS]`.
    pub(super) scratch: *mut f32,
    pub(super) cached: PhantomData<C>,
}

impl<C: Cached> Op for Partial<'_, C> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (g, len) = (&self.group, self.group.a.partial_len());
        // SAFETY: `Attention` promises every key and value up to the last position; the scratch is as long as
        // `scratch_len` says.
        unsafe {
            let mut seen = [const { 0..0 }; QUERIES];
            let mut all = 0..0;
            for (i, seen) in seen.iter_mut().enumerate().take(g.count) {
                clear(self.out.add(i * len), len);
                let chunk = self.chunk * CHUNK..(self.chunk + 1) * CHUNK;
                let visible = g.visible(i);
                *seen = visible.start.max(chunk.start)..visible.end.min(chunk.end);
                all = hull(all, seen.clone());
            }
            let mut from = all.start;
            while from < all.end {
                let block = from / BLOCK * BLOCK;
                let keys = from..all.end.min(block + BLOCK);
                self.scores(s, block, &keys);
                for (i, seen) in seen.iter().enumerate().take(g.count) {
                    weigh(s, self.scratch.add(i * BLOCK), block, seen, self.out.add(i * len), g.a);
                }
                self.add_values(s, block, &keys);
                from = keys.end;
            }
        }
    }
}

impl<C: Cached> Partial<'_, C> {
    /// Raw scores of `keys`, which lie in the block at `block`, for every query.
    ///
    /// # Safety
    /// As [`Partial`] says.
    #[inline(always)]
    unsafe fn scores<S: Simd>(&self, s: S, block: usize, keys: &Range<usize>) {
        let (g, a) = (&self.group, self.group.a);
        let (row_bytes, head) = (C::row_bytes(a.kv_heads * a.head_dim), g.kv_head * a.head_dim);
        // SAFETY: the caller's promise; rows past the last key repeat it.
        unsafe {
            let transposed = self.scratch.add(QUERIES * BLOCK);
            for first in (keys.start / KEYS * KEYS..keys.end).step_by(KEYS) {
                for side in 0..SIDE {
                    for d in (0..a.head_dim).step_by(LANES) {
                        let mut rows = [s.splat(0.0); LANES];
                        for (r, row) in rows.iter_mut().enumerate() {
                            let key = (first + side * LANES + r).clamp(keys.start, keys.end - 1);
                            *row = C::load(s, a.k.add(key * row_bytes), head + d);
                        }
                        s.transpose(&mut rows);
                        for (c, &column) in rows.iter().enumerate() {
                            s.store(transposed.add((d + c) * KEYS + side * LANES), column);
                        }
                    }
                }
                let mut i = 0;
                while i < g.count {
                    let out = self.scratch.add(i * BLOCK + first - block);
                    match g.count - i {
                        8.. => i += score_tile::<S, 8>(s, g, i, transposed, out),
                        4.. => i += score_tile::<S, 4>(s, g, i, transposed, out),
                        3.. => i += score_tile::<S, 3>(s, g, i, transposed, out),
                        2.. => i += score_tile::<S, 2>(s, g, i, transposed, out),
                        _ => i += score_tile::<S, 1>(s, g, i, transposed, out),
                    }
                }
            }
        }
    }

    /// Adds the weighted values of `keys` to the partial results.
    ///
    /// # Safety
    /// As [`Partial`] says.
    #[inline(always)]
    unsafe fn add_values<S: Simd>(&self, s: S, block: usize, keys: &Range<usize>) {
        let a = self.group.a;
        // SAFETY: the caller's promise.
        unsafe {
            let mut d = 0;
            while d < a.head_dim {
                if a.head_dim - d >= SIDE * LANES {
                    self.value_columns::<S, SIDE>(s, d, block, keys);
                    d += SIDE * LANES;
                } else {
                    self.value_columns::<S, 1>(s, d, block, keys);
                    d += LANES;
                }
            }
        }
    }

    /// `N` vectors of dimensions from `d` of all queries.
    ///
    /// # Safety
    /// As [`Partial`] says.
    #[inline(always)]
    unsafe fn value_columns<S: Simd, const N: usize>(
        &self,
        s: S,
        d: usize,
        block: usize,
        keys: &Range<usize>,
    ) {
        let mut i = 0;
        // SAFETY: the caller's promise.
        unsafe {
            while i < self.group.count {
                match self.group.count - i {
                    8.. => i += self.value_tile::<S, N, 8>(s, i, d, block, keys),
                    4.. => i += self.value_tile::<S, N, 4>(s, i, d, block, keys),
                    3.. => i += self.value_tile::<S, N, 3>(s, i, d, block, keys),
                    2.. => i += self.value_tile::<S, N, 2>(s, i, d, block, keys),
                    _ => i += self.value_tile::<S, N, 1>(s, i, d, block, keys),
                }
            }
        }
    }

    /// `N` vectors of dimensions from `d` of the queries `from..from + T`.
    ///
    /// # Safety
    /// As [`Partial`] says.
    #[inline(always)]
    unsafe fn value_tile<S: Simd, const N: usize, const T: usize>(
        &self,
        s: S,
        from: usize,
        d: usize,
        block: usize,
        keys: &Range<usize>,
    ) -> usize {
        let a = self.group.a;
        let (row_bytes, col) = (C::row_bytes(a.kv_heads * a.head_dim), self.group.kv_head * a.head_dim + d);
        // SAFETY: the caller's promise.
        unsafe {
            let out = self.out.add(from * a.partial_len() + 2 + d);
            let mut acc = [[s.splat(0.0); N]; T];
            for (t, acc) in acc.iter_mut().enumerate() {
                for (n, acc) in acc.iter_mut().enumerate() {
                    *acc = s.load(out.add(t * a.partial_len() + n * LANES));
                }
            }
            for key in keys.clone() {
                let mut v = [s.splat(0.0); N];
                for (n, v) in v.iter_mut().enumerate() {
                    *v = C::load(s, a.v.add(key * row_bytes), col + n * LANES);
                }
                let weights = self.scratch.add(from * BLOCK + key - block);
                for (t, acc) in acc.iter_mut().enumerate() {
                    let weight = s.splat(*weights.add(t * BLOCK));
                    for (acc, v) in acc.iter_mut().zip(&v) {
                        *acc = s.fma(*v, weight, *acc);
                    }
                }
            }
            for (t, acc) in acc.iter().enumerate() {
                for (n, &acc) in acc.iter().enumerate() {
                    s.store(out.add(t * a.partial_len() + n * LANES), acc);
                }
            }
        }
        T
    }
}

/// Scores of transposed keys for the queries `from..from + T`.
///
/// # Safety
/// The queries, the transposed keys and the rows of scores at `out` must be there.
#[inline(always)]
unsafe fn score_tile<S: Simd, const T: usize>(
    s: S,
    g: &Group<'_>,
    from: usize,
    keys: *const f32,
    out: *mut f32,
) -> usize {
    // SAFETY: the caller's promise.
    unsafe {
        let mut q = [g.a.q; T];
        for (t, q) in q.iter_mut().enumerate() {
            *q = q.add(g.offset(from + t));
        }
        let mut acc = [[s.splat(0.0); SIDE]; T];
        for d in 0..g.a.head_dim {
            let mut key = [s.splat(0.0); SIDE];
            for (side, key) in key.iter_mut().enumerate() {
                *key = s.load(keys.add(d * KEYS + side * LANES));
            }
            for (acc, q) in acc.iter_mut().zip(&q) {
                let q = s.splat(*q.add(d));
                for (acc, key) in acc.iter_mut().zip(&key) {
                    *acc = s.fma(*key, q, *acc);
                }
            }
        }
        for (t, acc) in acc.iter().enumerate() {
            for (side, &acc) in acc.iter().enumerate() {
                s.store(out.add(t * BLOCK + side * LANES), acc);
            }
        }
    }
    T
}

/// Turns a query's raw scores of a block into weights, and brings its partial result to their scale.
///
/// # Safety
/// `scores` must have a block, `partial` be a partial result.
#[inline(always)]
unsafe fn weigh<S: Simd>(
    s: S,
    scores: *mut f32,
    block: usize,
    seen: &Range<usize>,
    partial: *mut f32,
    a: &Attention,
) {
    // SAFETY: the caller's promise.
    let scores = unsafe { &mut *scores.cast::<[f32; BLOCK]>() };
    let seen = seen.start.max(block)..seen.end.min(block + BLOCK);
    if seen.is_empty() {
        *scores = [0.0; BLOCK];
        return;
    }
    scores.iter_mut().for_each(|x| *x *= a.scale);
    if let Some(cap) = a.softcap {
        let inverse = 1.0 / cap;
        scores.iter_mut().for_each(|x| *x = cap * tanh(*x * inverse));
    }
    scores[..seen.start - block].fill(f32::NEG_INFINITY);
    scores[seen.end - block..].fill(f32::NEG_INFINITY);
    let peak = maximum(s, scores);
    // SAFETY: the caller's promise.
    unsafe {
        let old = *partial;
        let peak = if peak > old { peak } else { old };
        let keep = exp(old - peak);
        let sum = exp_sum(s, scores, peak);
        partial.write(peak);
        *partial.add(1) = (*partial.add(1)).mul_add(keep, sum);
        for i in (2..a.head_dim + 2).step_by(LANES) {
            s.store(partial.add(i), s.mul(s.load(partial.add(i)), s.splat(keep)));
        }
    }
}
