//! Activations as int8 in groups of 32: what every quantized weight is multiplied with.
#![allow(unsafe_code, reason = "threads write disjoint tokens of one buffer")]

use super::math::ROUND;
use super::simd::{Op, Simd};
use half::f16;
use minfer_tensor::quant::{Q8_0, QK};

/// Weights or activations in a group.
pub(crate) const GROUP: usize = 32;
/// Tokens whose groups lie next to each other; the last tile may have fewer.
pub(crate) const TILE: usize = 12;

/// Where the parts of `tokens` quantized rows of `k` values lie in one buffer.
///
/// A tile of `w` tokens is `[k / 32][w][32]` of int8, `[k / 32][w]` of scales and `[k / 32][w][2]` of sums.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuantLayout {
    tokens: usize,
    groups: usize,
}

/// The parts of one tile.
#[derive(Clone, Copy)]
pub(crate) struct QuantTile {
    /// First token.
    pub(crate) start: usize,
    /// Tokens in this tile.
    pub(crate) width: usize,
    /// Values.
    pub(crate) q: *mut u8,
    /// Scales.
    pub(crate) d: *mut f32,
    /// Sums of the first and second sixteen values of each group.
    pub(crate) sums: *mut [i32; 2],
}

impl QuantLayout {
    /// `k` is a multiple of 32.
    pub(crate) fn new(tokens: usize, k: usize) -> Self {
        Self { tokens, groups: k / GROUP }
    }

    /// Bytes of the buffer.
    pub(crate) fn bytes(self) -> usize {
        self.tokens * self.groups * (GROUP + 4 + 8)
    }

    pub(crate) fn groups(self) -> usize {
        self.groups
    }

    pub(crate) fn tiles(self) -> usize {
        self.tokens.div_ceil(TILE)
    }

    /// The parts of tile `index` in the buffer at `base`.
    #[inline(always)]
    pub(crate) fn tile(self, base: *mut u8, index: usize) -> QuantTile {
        let start = index * TILE;
        let (all, before) = (self.tokens * self.groups, start * self.groups);
        QuantTile {
            start,
            width: TILE.min(self.tokens - start),
            q: base.wrapping_add(before * GROUP),
            d: base.wrapping_add(all * GROUP).cast::<f32>().wrapping_add(before),
            sums: base.wrapping_add(all * (GROUP + 4)).cast::<[i32; 2]>().wrapping_add(before),
        }
    }
}

/// Quantizes one group; returns its scale and the sums of its halves.
///
/// `d = max |x| / 127`, `q = round(x * (1 / d))`, ties to even. A NaN or an infinity makes `d` NaN, so that it
/// reaches every output; a `d` below the normal range counts as zero.
#[inline(always)]
fn quantize_group(x: &[f32; GROUP], q: &mut [i8; GROUP]) -> (f32, [i32; 2]) {
    let peak = x.iter().fold(0, |m: u32, v| m.max(v.to_bits() & 0x7fff_ffff));
    let finite = peak < f32::INFINITY.to_bits();
    let d = f32::from_bits(peak) / 127.0;
    let inverse = if finite && d >= f32::MIN_POSITIVE { 1.0 / d } else { 0.0 };
    if inverse == 0.0 {
        *q = [0; GROUP];
        return (if finite { 0.0 } else { f32::NAN }, [0; 2]);
    }
    // In an array of its own, so that the compiler sees that nothing overlaps and uses vectors.
    let mut rounded = [0; GROUP];
    for (q, v) in rounded.iter_mut().zip(x) {
        *q = (v * inverse + ROUND).to_bits() as i8;
    }
    *q = rounded;
    let (first, second) = rounded.split_at(GROUP / 2);
    let mut sums = [0; 2];
    for (a, b) in first.iter().zip(second) {
        sums = [sums[0] + i32::from(*a), sums[1] + i32::from(*b)];
    }
    (d, sums)
}

/// Quantizes some of the rows of a matrix.
pub(crate) struct Quantize {
    /// `[tokens][k]`.
    pub(crate) x: *const f32,
    pub(crate) layout: QuantLayout,
    /// Rows to quantize.
    pub(crate) tokens: std::ops::Range<usize>,
    /// Buffer of [`QuantLayout::bytes`].
    pub(crate) out: *mut u8,
}

impl Op for Quantize {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let groups = self.layout.groups;
        for token in self.tokens {
            let tile = self.layout.tile(self.out, token / TILE);
            for g in 0..groups {
                let at = g * tile.width + token % TILE;
                // SAFETY: whoever made the op promised `x` and `out` for these tokens; `at` is in the tile.
                unsafe {
                    let x = &*self.x.add(token * groups * GROUP + g * GROUP).cast::<[f32; GROUP]>();
                    let q = &mut *tile.q.add(at * GROUP).cast::<[i8; GROUP]>();
                    let (d, sums) = quantize_group(x, q);
                    tile.d.add(at).write(d);
                    tile.sums.add(at).write(sums);
                }
            }
        }
    }
}

/// Rounds f32 to blocks of Q8_0: the scale of a group as f16.
///
/// A NaN or an infinity makes the scale NaN and a scale beyond f16 makes it infinite, so that neither is lost.
pub(crate) struct ToQ8_0<'a> {
    pub(crate) out: &'a mut [Q8_0],
    pub(crate) x: &'a [f32],
}

impl Op for ToQ8_0<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for (block, x) in self.out.iter_mut().zip(self.x.as_chunks::<QK>().0) {
            let (d, _) = quantize_group(x, &mut block.qs);
            block.d = f16::from_f32(d).to_le_bytes();
        }
    }
}
