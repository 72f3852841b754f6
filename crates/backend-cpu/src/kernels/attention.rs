//! Causal attention with an online softmax over blocks of keys.
//!
//! Keys are taken in chunks of [`CHUNK`] at absolute positions. A chunk gives a partial result of each query:
//! the largest score, the sum of weights and the weighted sum of values; partials are merged in order. So a
//! result depends neither on which thread computes a chunk nor on how many queries are computed together, and
//! at most a [`BLOCK`] of scores is held.
//!
//! A score is one fused chain over the head's dimensions, an output one fused chain over the keys.
//!
//! Sixteen keys are sixteen lanes. Keys that lie as rows are transposed on the way; a cache of keys therefore holds
//! [`KEY_BLOCK`]s, transposed once when they are written.
#![allow(unsafe_code, reason = "pointer kernels; `Attention` states the contract")]

mod cached;
mod partial;

pub(super) use cached::Cached;

use super::math::exp;
use super::simd::{LANES, Op, Simd};
use partial::Partial;
use std::marker::PhantomData;
use std::ops::Range;

/// Keys whose scores are held at a time.
const BLOCK: usize = 64;
/// Keys of a partial result.
pub const CHUNK: usize = 256;
/// Keys of a transposed block: `[kv_heads * head_dim][KEY_BLOCK]` in the place of as many rows.
pub const KEY_BLOCK: usize = LANES;
/// Queries that share the loads of a block.
const QUERIES: usize = 48;

/// Attention of some tokens and the query heads of one key-value head. Row `p` of the keys and values belongs
/// to position `p`; a row is stored as f32, f16 or Q8_0.
#[derive(Clone, Debug)]
pub struct Attention {
    /// Queries, `[tokens][heads * head_dim]`.
    pub q: *const f32,
    /// Keys, `[slots][kv_heads * head_dim]`.
    pub k: *const u8,
    /// How many [`KEY_BLOCK`]s at the start of the keys are transposed: none or all whole ones. Not for Q8_0.
    pub key_blocks: usize,
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
    /// Values of a head, a multiple of 16; of 32 where rows are blocks.
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
        let keys = BLOCK * self.head_dim;
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
pub(crate) struct Attend<'a, C> {
    pub(crate) a: &'a Attention,
    pub(crate) kv_head: usize,
    pub(crate) tokens: Range<usize>,
    /// [`Attention::scratch_len`].
    pub(crate) scratch: *mut f32,
    pub(crate) cached: PhantomData<C>,
}

impl<C: Cached> Op for Attend<'_, C> {
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
                        cached: PhantomData::<C>,
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
pub(crate) struct AttendChunks<'a, C> {
    pub(crate) a: &'a Attention,
    pub(crate) kv_head: usize,
    pub(crate) token: usize,
    pub(crate) chunks: Range<usize>,
    /// `[chunks][heads of the key-value head][partial_len]`, for all chunks from 0.
    pub(crate) out: *mut f32,
    /// [`Attention::scratch_len`].
    pub(crate) scratch: *mut f32,
    pub(crate) cached: PhantomData<C>,
}

impl<C: Cached> Op for AttendChunks<'_, C> {
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
                s.run(Partial { group, chunk, out, scratch: self.scratch, cached: PhantomData::<C> });
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
