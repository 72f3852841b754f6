//! Loops that only read or only multiply: what the other kernels can be at best.
#![allow(
    unsafe_code,
    reason = "pointer loads within a slice, over the unsafe interface of the instruction sets"
)]

use super::simd::{LANES, Op, Simd};
use std::hint::black_box;

/// Bytes of a vector of sixteen words.
const VECTOR: usize = 4 * LANES;
/// Vectors that are read together, each into its own register.
const STREAMS: usize = 8;
/// Vectors of weights of a round: they stay in the nearest cache.
const WEIGHTS: usize = 16;
/// How far ahead lines are fetched, as the packed kernels do.
const AHEAD: usize = 8 << 10;

/// Reads bytes and folds them with `or`, so that no load can be left out.
pub(crate) struct ReadThrough<'a>(pub(crate) &'a [u8]);

impl Op for ReadThrough<'_> {
    type Output = u32;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> u32 {
        let mut folded = [simd.int(0); STREAMS];
        let (chunks, rest) = self.0.as_chunks::<{ STREAMS * VECTOR }>();
        for chunk in chunks {
            for (i, folded) in folded.iter_mut().enumerate() {
                // SAFETY: the chunk has `STREAMS` vectors.
                let words = unsafe { simd.load_words(chunk.as_ptr().add(i * VECTOR)) };
                simd.prefetch(chunk.as_ptr().wrapping_add(AHEAD + i * VECTOR));
                *folded = simd.int_or(*folded, words);
            }
        }
        let words = folded.iter().flat_map(|&v| lanes(simd, v)).fold(0, |a, b| a | b);
        rest.iter().fold(words, |folded, &byte| folded | u32::from(byte))
    }
}

/// Multiplies bytes that are all 1, in rounds of few vectors and sums in registers: the sum is the number of multiplications, so that none can be
/// left out.
pub(crate) struct Products(pub(crate) usize);

impl Op for Products {
    type Output = u64;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> u64 {
        // As many sums as the matrix product keeps: enough to hide the latency of one.
        match S::PANEL_TILE {
            (2, 6) => multiply::<S, 12>(simd, self.0),
            _ => multiply::<S, 4>(simd, self.0),
        }
    }
}

#[inline(always)]
fn multiply<S: Simd, const N: usize>(simd: S, rounds: usize) -> u64 {
    let ones = [[1u8; VECTOR]; WEIGHTS];
    // Of a slice that the compiler knows nothing about, no product can be moved out of the loop.
    let weights = black_box(&ones[..]);
    let mut sums = [simd.int(0); N];
    // SAFETY: a row of the array is a vector.
    let activations = unsafe { simd.load_bytes(black_box(&ones[0]).as_ptr()) };
    for _ in 0..rounds {
        for weights in weights {
            // SAFETY: as above.
            let weights = unsafe { simd.load_bytes(weights.as_ptr()) };
            sums = std::array::from_fn(|i| simd.dot(sums[i], weights, activations));
        }
    }
    let mut total = 0;
    for sum in sums {
        total += lanes(simd, sum).iter().map(|&lane| u64::from(lane)).sum::<u64>();
    }
    total
}

/// The lanes of a vector of words; each half is a float exactly.
#[inline(always)]
fn lanes<S: Simd>(simd: S, v: S::I) -> [u32; LANES] {
    let low = simd.lanes(simd.int_to_f32(simd.int_and(v, 0xffff)));
    let high = simd.lanes(simd.int_to_f32(simd.int_shr(v, 16)));
    std::array::from_fn(|i| (high[i] as u32) << 16 | low[i] as u32)
}
