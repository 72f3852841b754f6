//! Causal attention with an online softmax over blocks of keys.
//!
//! Keys are taken in chunks of [`CHUNK`] at absolute positions. A chunk gives a partial result of each query:
//! the largest score, the sum of weights and the weighted sum of values; partials are merged in order. So a
//! result depends neither on which thread computes a chunk nor on how many queries are computed together, and
//! at most a [`BLOCK`] of scores is held.
//!
//! A score is one fused chain over the head's dimensions, an output one fused chain over the keys.
#![allow(unsafe_code, reason = "pointer kernels; `Attention` states the contract")]

use super::dense::Float;
use super::math::{exp, exp_sum, maximum, tanh};
use super::simd::{LANES, Op, Simd};
use std::marker::PhantomData;
use std::ops::Range;

/// Keys whose scores are held at a time.
const BLOCK: usize = 64;
/// Keys of a partial result.
pub const CHUNK: usize = 256;
/// Queries that share the loads of a block.
const QUERIES: usize = 16;
/// Vectors side by side: keys of scores, dimensions of values. They share the loads of queries and weights.
const SIDE: usize = 2;
/// Keys that are transposed at a time.
const KEYS: usize = SIDE * LANES;

/// Attention of some tokens and the query heads of one key-value head. Row `p` of the keys and values belongs
/// to position `p`.
#[derive(Clone, Debug)]
pub struct Attention {
    /// Queries, `[tokens][heads * head_dim]`.
    pub q: *const f32,
    /// Keys, `[slots][kv_heads * head_dim]`.
    pub k: *const u8,
    /// Values, like the keys.
    pub v: *const u8,
    /// Result, like the queries.
    pub out: *mut f32,
    /// Position of each token; a negative one gives zeros.
    pub positions: *const i32,
    /// Query heads.
    pub heads: usize,
    /// Key-value heads; divides `heads`.
    pub kv_heads: usize,
    /// Values of a head, a multiple of 16.
    pub head_dim: usize,
    /// Factor on the scores.
    pub scale: f32,
    /// Positions a query sees, itself included; `usize::MAX` for all.
    pub window: usize,
    /// `cap * tanh(score / cap)` on the scaled scores.
    pub softcap: Option<f32>,
}

impl Attention {
    /// f32 of scratch for [`Attend`].
    pub(crate) fn scratch_len(&self) -> usize {
        let keys = KEYS * self.head_dim;
        keys + QUERIES * (BLOCK + 2 * self.partial_len())
    }

    /// f32 of a partial result: the largest score, the sum of weights, the weighted values.
    pub fn partial_len(&self) -> usize {
        self.head_dim + 2
    }

    /// The positions that a query at `position` sees.
    fn visible(&self, position: i32) -> Range<usize> {
        let end = usize::try_from(position).map_or(0, |p| p + 1);
        end.saturating_sub(self.window)..end
    }

    /// The chunks that a query at `position` sees.
    pub fn chunks(&self, position: i32) -> Range<usize> {
        let seen = self.visible(position);
        seen.start / CHUNK..seen.end.div_ceil(CHUNK)
    }
}

/// Queries that are computed together: the heads of a key-value head for some tokens, token by token.
#[derive(Clone)]
struct Group<'a> {
    a: &'a Attention,
    kv_head: usize,
    /// First of the pairs of token and head.
    first: usize,
    count: usize,
}

impl Group<'_> {
    /// Token and query head of query `i`.
    fn query(&self, i: usize) -> (usize, usize) {
        let heads = self.a.heads / self.a.kv_heads;
        ((self.first + i) / heads, self.kv_head * heads + (self.first + i) % heads)
    }

    /// Offset of query `i` in the queries and in the result.
    fn offset(&self, i: usize) -> usize {
        let (token, head) = self.query(i);
        (token * self.a.heads + head) * self.a.head_dim
    }

    /// # Safety
    /// The positions must be readable.
    unsafe fn visible(&self, i: usize) -> Range<usize> {
        // SAFETY: the caller's promise.
        self.a.visible(unsafe { *self.a.positions.add(self.query(i).0) })
    }
}

/// Attention of a range of tokens, start to end.
pub(crate) struct Attend<'a, W> {
    pub(crate) a: &'a Attention,
    pub(crate) kv_head: usize,
    pub(crate) tokens: Range<usize>,
    /// [`Attention::scratch_len`].
    pub(crate) scratch: *mut f32,
    pub(crate) float: PhantomData<W>,
}

impl<W: Float> Op for Attend<'_, W> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (a, len) = (self.a, self.a.partial_len());
        let heads = a.heads / a.kv_heads;
        let end = self.tokens.end * heads;
        for first in (self.tokens.start * heads..end).step_by(QUERIES) {
            let group = Group { a, kv_head: self.kv_head, first, count: QUERIES.min(end - first) };
            let total = self.scratch;
            let partial = total.wrapping_add(QUERIES * len);
            let scratch = partial.wrapping_add(QUERIES * len);
            // SAFETY: `Attention` promises all reads and writes; the scratch has room for two partial
            // results a query and for `Partial`.
            unsafe {
                let mut chunks = 0..0;
                for i in 0..group.count {
                    clear(total.add(i * len), len);
                    let seen = group.visible(i);
                    chunks = hull(chunks, seen.start / CHUNK..seen.end.div_ceil(CHUNK));
                }
                for chunk in chunks {
                    let op = Partial {
                        group: group.clone(),
                        chunk,
                        out: partial,
                        scratch,
                        float: PhantomData::<W>,
                    };
                    s.run(op);
                    for i in 0..group.count {
                        merge(s, total.add(i * len), partial.add(i * len), a.head_dim);
                    }
                }
                for i in 0..group.count {
                    finish(s, a.out.add(group.offset(i)), total.add(i * len), a.head_dim);
                }
            }
        }
    }
}

/// Partial results of one token's query heads of one key-value head, for a range of chunks.
pub(crate) struct AttendChunks<'a, W> {
    pub(crate) a: &'a Attention,
    pub(crate) kv_head: usize,
    pub(crate) token: usize,
    pub(crate) chunks: Range<usize>,
    /// `[chunks][heads of the key-value head][partial_len]`, for all chunks from 0.
    pub(crate) out: *mut f32,
    /// [`Attention::scratch_len`].
    pub(crate) scratch: *mut f32,
    pub(crate) float: PhantomData<W>,
}

impl<W: Float> Op for AttendChunks<'_, W> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (a, heads) = (self.a, self.a.heads / self.a.kv_heads);
        for chunk in self.chunks {
            for from in (0..heads).step_by(QUERIES) {
                let group = Group {
                    a,
                    kv_head: self.kv_head,
                    first: self.token * heads + from,
                    count: QUERIES.min(heads - from),
                };
                let out = self.out.wrapping_add((chunk * heads + from) * a.partial_len());
                s.run(Partial { group, chunk, out, scratch: self.scratch, float: PhantomData::<W> });
            }
        }
    }
}

/// Merges the partial results of [`AttendChunks`] of one token and key-value head into the result.
pub(crate) struct MergeChunks<'a> {
    pub(crate) a: &'a Attention,
    pub(crate) kv_head: usize,
    pub(crate) token: usize,
    pub(crate) chunks: Range<usize>,
    /// As [`AttendChunks::out`].
    pub(crate) partials: *const f32,
    /// [`Attention::scratch_len`].
    pub(crate) scratch: *mut f32,
}

impl Op for MergeChunks<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (a, len) = (self.a, self.a.partial_len());
        let heads = a.heads / a.kv_heads;
        let group = Group { a, kv_head: self.kv_head, first: self.token * heads, count: heads };
        for i in 0..heads {
            // SAFETY: whoever made the op promised the partials, the result and the scratch.
            unsafe {
                clear(self.scratch, len);
                for chunk in self.chunks.clone() {
                    merge(s, self.scratch, self.partials.add((chunk * heads + i) * len), a.head_dim);
                }
                finish(s, a.out.add(group.offset(i)), self.scratch, a.head_dim);
            }
        }
    }
}

/// The smallest range that covers both.
fn hull(a: Range<usize>, b: Range<usize>) -> Range<usize> {
    match (a.start < a.end, b.start < b.end) {
        (true, true) => a.start.min(b.start)..a.end.max(b.end),
        (true, false) => a,
        (false, _) => b,
    }
}

/// Makes a partial result of no keys.
///
/// # Safety
/// `p` must be writable for `len` f32.
#[inline(always)]
unsafe fn clear(p: *mut f32, len: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        std::ptr::write_bytes(p, 0, len);
        p.write(f32::NEG_INFINITY);
    }
}

/// Adds the partial result `from` to `to`; one of no keys changes nothing.
///
/// # Safety
/// Both must be partial results.
#[inline(always)]
unsafe fn merge<S: Simd>(s: S, to: *mut f32, from: *const f32, head_dim: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        let (old, new) = (*to, *from);
        if *from.add(1) == 0.0 {
            return;
        }
        let peak = if new > old { new } else { old };
        let (keep, gain) = (exp(old - peak), exp(new - peak));
        to.write(peak);
        *to.add(1) = (*from.add(1)).mul_add(gain, *to.add(1) * keep);
        for i in (2..head_dim + 2).step_by(LANES) {
            let kept = s.mul(s.load(to.add(i)), s.splat(keep));
            s.store(to.add(i), s.fma(s.load(from.add(i)), s.splat(gain), kept));
        }
    }
}

/// Writes the weighted mean of a partial result; zeros where there was no key.
///
/// # Safety
/// `partial` must be a partial result and `out` writable for `head_dim` f32.
#[inline(always)]
unsafe fn finish<S: Simd>(s: S, out: *mut f32, partial: *const f32, head_dim: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        let sum = *partial.add(1);
        let scale = if sum == 0.0 { 0.0 } else { 1.0 / sum };
        for i in (0..head_dim).step_by(LANES) {
            s.store(out.add(i), s.mul(s.load(partial.add(2 + i)), s.splat(scale)));
        }
    }
}

/// Partial results of a group of queries for one chunk.
struct Partial<'a, W> {
    group: Group<'a>,
    chunk: usize,
    /// `[count][partial_len]`.
    out: *mut f32,
    /// Scores `[QUERIES][BLOCK]`, then keys as `[head_dim][KEYS]`.
    scratch: *mut f32,
    float: PhantomData<W>,
}

impl<W: Float> Op for Partial<'_, W> {
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

impl<W: Float> Partial<'_, W> {
    /// Raw scores of `keys`, which lie in the block at `block`, for every query.
    ///
    /// # Safety
    /// As [`Partial`] says.
    #[inline(always)]
    unsafe fn scores<S: Simd>(&self, s: S, block: usize, keys: &Range<usize>) {
        let (g, a) = (&self.group, self.group.a);
        let stride = a.kv_heads * a.head_dim;
        // SAFETY: the caller's promise; rows past the last key repeat it.
        unsafe {
            let transposed = self.scratch.add(QUERIES * BLOCK);
            for first in (keys.start / KEYS * KEYS..keys.end).step_by(KEYS) {
                for side in 0..SIDE {
                    for d in (0..a.head_dim).step_by(LANES) {
                        let mut rows = [s.splat(0.0); LANES];
                        for (r, row) in rows.iter_mut().enumerate() {
                            let key = (first + side * LANES + r).clamp(keys.start, keys.end - 1);
                            let at = key * stride + g.kv_head * a.head_dim + d;
                            *row = W::load(s, a.k.cast::<W::Bits>().add(at));
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
        let stride = a.kv_heads * a.head_dim;
        // SAFETY: the caller's promise.
        unsafe {
            let out = self.out.add(from * a.partial_len() + 2 + d);
            let mut acc = [[s.splat(0.0); N]; T];
            for (t, acc) in acc.iter_mut().enumerate() {
                for (n, acc) in acc.iter_mut().enumerate() {
                    *acc = s.load(out.add(t * a.partial_len() + n * LANES));
                }
            }
            let values = a.v.cast::<W::Bits>().add(self.group.kv_head * a.head_dim + d);
            for key in keys.clone() {
                let mut v = [s.splat(0.0); N];
                for (n, v) in v.iter_mut().enumerate() {
                    *v = W::load(s, values.add(key * stride + n * LANES));
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
