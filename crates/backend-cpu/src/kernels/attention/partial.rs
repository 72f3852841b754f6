//! The partial results of one chunk of keys.
#![allow(unsafe_code, reason = "pointer kernels; `Attention` states the contract")]

use super::super::math::{exp, exp_sum, maximum, tanh};
use super::super::simd::{LANES, Op, Simd};
use super::{Attention, BLOCK, CHUNK, Cached, Group, QUERIES, clear, hull};
use std::marker::PhantomData;
use std::ops::Range;

/// Queries up to which transposed keys aren't converted beforehand.
const FEW: usize = 8;

/// Partial results of a group of queries for one chunk.
pub(super) struct Partial<'a, C> {
    pub(super) group: Group<'a>,
    pub(super) chunk: usize,
    /// `[count][partial_len]`.
    pub(super) out: *mut f32,
    /// Scores `[QUERIES][BLOCK]`, then transposed keys of a block.
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
    /// Raw scores of the block at `block` for every query; of keys outside `keys` some number.
    ///
    /// # Safety
    /// As [`Partial`] says.
    #[inline(always)]
    unsafe fn scores<S: Simd>(&self, s: S, block: usize, keys: &Range<usize>) {
        let a = self.group.a;
        let nths = (keys.start - block) / LANES..(keys.end - block).div_ceil(LANES);
        let whole = a.key_blocks.saturating_sub(block / LANES);
        let (first, stride) = (self.head(a.k, block), LANES * self.row_bytes());
        let cached = InCache { first, stride, last: nths.end - 1, cached: PhantomData::<C> };
        // SAFETY: the caller's promise.
        unsafe {
            if nths.end <= whole && self.group.count <= FEW {
                return self.score_all(s, cached, nths);
            }
            let scratch = InScratch { first: self.scratch.add(QUERIES * BLOCK), head_dim: a.head_dim };
            for nth in nths.clone() {
                if nth < whole {
                    for d in 0..a.head_dim {
                        s.store(scratch.at(nth, d), cached.load(s, nth, d));
                    }
                } else {
                    self.transpose(s, block + nth * LANES, keys, scratch.at(nth, 0));
                }
            }
            self.score_all(s, scratch, nths);
        }
    }

    /// Bytes of a row of keys or values.
    #[inline(always)]
    fn row_bytes(&self) -> usize {
        C::row_bytes(self.group.a.kv_heads * self.group.a.head_dim)
    }

    /// Where this head's part of the sixteen transposed keys from `key` on begins.
    #[inline(always)]
    fn head(&self, keys: *const u8, key: usize) -> *const u8 {
        let head = self.group.kv_head * self.group.a.head_dim;
        keys.wrapping_add(key * self.row_bytes() + C::row_bytes(head * LANES))
    }

    /// Brings this head's sixteen keys from `first` on, which lie as rows, to `[head_dim][LANES]`; those outside `keys`
    /// repeat one.
    ///
    /// # Safety
    /// As [`Partial`] says, and `out` must have room.
    #[inline(always)]
    unsafe fn transpose<S: Simd>(&self, s: S, first: usize, keys: &Range<usize>, out: *mut f32) {
        let (a, head) = (self.group.a, self.group.kv_head * self.group.a.head_dim);
        // SAFETY: the caller's promise.
        unsafe {
            let mut at = [a.k; LANES];
            for (r, at) in at.iter_mut().enumerate() {
                *at = a.k.add((first + r).clamp(keys.start, keys.end - 1) * self.row_bytes());
            }
            for d in (0..a.head_dim).step_by(LANES) {
                let mut rows = [s.splat(0.0); LANES];
                for (row, at) in rows.iter_mut().zip(at) {
                    *row = C::load(s, at, head + d);
                }
                s.transpose(&mut rows);
                for (c, &column) in rows.iter().enumerate() {
                    s.store(out.add((d + c) * LANES), column);
                }
            }
        }
    }

    /// Scores of every query, in tiles of as many accumulators as registers hold beside their operands.
    ///
    /// # Safety
    /// As [`Partial`] says, and the keys `nths` must be there.
    #[inline(always)]
    unsafe fn score_all<S: Simd, K: Keys>(&self, s: S, keys: K, nths: Range<usize>) {
        let mut i = 0;
        // SAFETY: the caller's promise.
        unsafe {
            while i < self.group.count {
                let left = self.group.count - i;
                i += match (left, S::MANY_REGISTERS) {
                    (12.., true) => self.score_tiles::<S, K, 12, 2>(s, keys, &nths, i),
                    (8.., true) => self.score_tiles::<S, K, 8, 2>(s, keys, &nths, i),
                    (4.., true) => self.score_tiles::<S, K, 4, 4>(s, keys, &nths, i),
                    (3.., true) => self.score_tiles::<S, K, 3, 4>(s, keys, &nths, i),
                    (2.., true) => self.score_tiles::<S, K, 2, 4>(s, keys, &nths, i),
                    (_, true) => self.score_tiles::<S, K, 1, 4>(s, keys, &nths, i),
                    (4.., false) => self.score_tiles::<S, K, 4, 1>(s, keys, &nths, i),
                    (3.., false) => self.score_tiles::<S, K, 3, 1>(s, keys, &nths, i),
                    (2.., false) => self.score_tiles::<S, K, 2, 2>(s, keys, &nths, i),
                    (_, false) => self.score_tiles::<S, K, 1, 4>(s, keys, &nths, i),
                };
            }
        }
    }

    /// Scores of the queries `from..from + T`, `N` times sixteen keys at a time. Returns `T`.
    ///
    /// # Safety
    /// As [`Partial::score_all`].
    #[inline(always)]
    unsafe fn score_tiles<S: Simd, K: Keys, const T: usize, const N: usize>(
        &self,
        s: S,
        keys: K,
        nths: &Range<usize>,
        from: usize,
    ) -> usize {
        let g = &self.group;
        // SAFETY: the caller's promise; a block of scores is a whole number of tiles.
        unsafe {
            let mut q = [g.a.q; T];
            for (t, q) in q.iter_mut().enumerate() {
                *q = q.add(g.offset(from + t));
            }
            for nth in (nths.start / N * N..nths.end).step_by(N) {
                let mut acc = [[s.splat(0.0); N]; T];
                for d in 0..g.a.head_dim {
                    let mut key = [s.splat(0.0); N];
                    for (n, key) in key.iter_mut().enumerate() {
                        *key = keys.load(s, nth + n, d);
                    }
                    for (acc, q) in acc.iter_mut().zip(&q) {
                        let q = s.splat(*q.add(d));
                        for (acc, key) in acc.iter_mut().zip(&key) {
                            *acc = s.fma(*key, q, *acc);
                        }
                    }
                }
                for (t, acc) in acc.iter().enumerate() {
                    for (n, &acc) in acc.iter().enumerate() {
                        s.store(self.scratch.add((from + t) * BLOCK + (nth + n) * LANES), acc);
                    }
                }
            }
        }
        T
    }

    /// Adds the weighted values of `keys` to the partial results.
    ///
    /// # Safety
    /// As [`Partial`] says.
    #[inline(always)]
    unsafe fn add_values<S: Simd>(&self, s: S, block: usize, keys: &Range<usize>) {
        let mut i = 0;
        // SAFETY: the caller's promise.
        unsafe {
            while i < self.group.count {
                let left = self.group.count - i;
                i += match (left, S::MANY_REGISTERS) {
                    (12.., true) => self.value_tiles::<S, 12, 2>(s, i, block, keys),
                    (8.., true) => self.value_tiles::<S, 8, 2>(s, i, block, keys),
                    (4.., true) => self.value_tiles::<S, 4, 4>(s, i, block, keys),
                    (3.., true) => self.value_tiles::<S, 3, 4>(s, i, block, keys),
                    (2.., true) => self.value_tiles::<S, 2, 4>(s, i, block, keys),
                    (_, true) => self.value_tiles::<S, 1, 4>(s, i, block, keys),
                    (4.., false) => self.value_tiles::<S, 4, 1>(s, i, block, keys),
                    (3.., false) => self.value_tiles::<S, 3, 1>(s, i, block, keys),
                    (2.., false) => self.value_tiles::<S, 2, 2>(s, i, block, keys),
                    (_, false) => self.value_tiles::<S, 1, 4>(s, i, block, keys),
                };
            }
        }
    }

    /// The queries `from..from + T`, `N` vectors of dimensions at a time. Returns `T`.
    ///
    /// # Safety
    /// As [`Partial`] says.
    #[inline(always)]
    unsafe fn value_tiles<S: Simd, const T: usize, const N: usize>(
        &self,
        s: S,
        from: usize,
        block: usize,
        keys: &Range<usize>,
    ) -> usize {
        let (mut d, head_dim) = (0, self.group.a.head_dim);
        // SAFETY: the caller's promise.
        unsafe {
            while head_dim - d >= N * LANES {
                self.value_tile::<S, T, N>(s, from, d, block, keys);
                d += N * LANES;
            }
            while d < head_dim {
                self.value_tile::<S, T, 1>(s, from, d, block, keys);
                d += LANES;
            }
        }
        T
    }

    /// `N` vectors of dimensions from `d` of the queries `from..from + T`.
    ///
    /// # Safety
    /// As [`Partial`] says.
    #[inline(always)]
    unsafe fn value_tile<S: Simd, const T: usize, const N: usize>(
        &self,
        s: S,
        from: usize,
        d: usize,
        block: usize,
        keys: &Range<usize>,
    ) {
        let a = self.group.a;
        let (row_bytes, col) = (self.row_bytes(), self.group.kv_head * a.head_dim + d);
        let reads_first = from == 0 && d == 0;
        // Read here and not in the loop, where the compiler thinks that a prefetch might change it.
        let values = a.v;
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
                if reads_first {
                    self.prefetch(s, key + BLOCK);
                }
                let mut v = [s.splat(0.0); N];
                for (n, v) in v.iter_mut().enumerate() {
                    *v = C::load(s, values.add(key * row_bytes), col + n * LANES);
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
    }

    /// Asks for the key and value `key` while another block is computed: rows are strides apart, and heads are parts of
    /// them, which no processor foresees. It need not exist.
    #[inline(always)]
    fn prefetch<S: Simd>(&self, s: S, key: usize) {
        let a = self.group.a;
        let bytes = C::row_bytes(a.head_dim);
        let row = key * self.row_bytes() + self.group.kv_head * bytes;
        let k = if key / LANES < a.key_blocks {
            self.head(a.k, key / LANES * LANES).wrapping_add(key % LANES * bytes)
        } else {
            a.k.wrapping_add(row)
        };
        for line in (0..bytes).step_by(64) {
            s.prefetch(k.wrapping_add(line));
            s.prefetch(a.v.wrapping_add(row + line));
        }
    }
}

/// A head's keys of a block, sixteen beside each other.
trait Keys: Copy {
    /// Dimension `d` of the keys from `nth * LANES` on.
    ///
    /// # Safety
    /// They must be there; behind the last ones some may be repeated.
    unsafe fn load<S: Simd>(self, s: S, nth: usize, d: usize) -> S::F;
}

/// Transposed in the cache.
#[derive(Clone, Copy)]
struct InCache<C> {
    first: *const u8,
    /// Bytes from sixteen keys to the next.
    stride: usize,
    /// The last ones that are there.
    last: usize,
    cached: PhantomData<C>,
}

impl<C: Cached> Keys for InCache<C> {
    #[inline(always)]
    unsafe fn load<S: Simd>(self, s: S, nth: usize, d: usize) -> S::F {
        // SAFETY: the caller's promise.
        unsafe { C::load(s, self.first.add(nth.min(self.last) * self.stride), d * LANES) }
    }
}

/// Transposed into scratch, `[nth][head_dim][LANES]`.
#[derive(Clone, Copy)]
struct InScratch {
    first: *mut f32,
    head_dim: usize,
}

impl InScratch {
    #[inline(always)]
    fn at(self, nth: usize, d: usize) -> *mut f32 {
        self.first.wrapping_add((nth * self.head_dim + d) * LANES)
    }
}

impl Keys for InScratch {
    #[inline(always)]
    unsafe fn load<S: Simd>(self, s: S, nth: usize, d: usize) -> S::F {
        // SAFETY: the caller's promise; the scratch has room for a block.
        unsafe { s.load(self.at(nth, d)) }
    }
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
