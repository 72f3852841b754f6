//! Weights in panels: sixteen rows whose blocks hold their bytes in the order in which kernels consume them.
//!
//! A panel is as long as its rows in the file. A block of it has, for each part of the format's order, the first word
//! of all rows, the second word of all rows, and so on: one load gives four weights of sixteen rows, and a product reads
//! a single stream. Rows that don't exist are zeros.
#![allow(unsafe_code, reason = "pointer loads within a block")]

use super::format::{Blocks, Format};
use super::quantize::GROUP;
use super::simd::{LANES, Rows, Simd};
use minfer_tensor::DType;
use std::marker::PhantomData;
use std::ops::Range;

/// Bytes of the longest block of a format.
const MAX_BLOCK: usize = 256;

/// The blocks of sixteen rows as in the file.
#[derive(Clone, Copy)]
pub(super) struct InRows<'a, F> {
    /// The first row's block.
    pub(super) block: *const u8,
    pub(super) rows: &'a Rows,
    pub(super) format: PhantomData<F>,
}

impl<S: Simd, F: Format> Blocks<S> for InRows<'_, F> {
    #[inline(always)]
    unsafe fn half(&self, s: S, at: usize) -> S::I {
        // SAFETY: the caller's promise; at the end of a block the half is reached from the bytes before it.
        unsafe {
            match at + 4 <= F::BYTES {
                true => self.word(s, at),
                false => s.int_shr(self.word(s, at - 2), 16),
            }
        }
    }

    #[inline(always)]
    unsafe fn word(&self, s: S, at: usize) -> S::I {
        // SAFETY: the caller's promise.
        unsafe { s.gather(self.block.add(at), self.rows) }
    }
}

/// The blocks of sixteen rows in a panel.
#[derive(Clone, Copy)]
pub(super) struct InPanel<F> {
    /// The panel's block.
    pub(super) block: *const u8,
    pub(super) format: PhantomData<F>,
}

impl<S: Simd, F: Format> Blocks<S> for InPanel<F> {
    #[inline(always)]
    unsafe fn half(&self, s: S, at: usize) -> S::I {
        // SAFETY: the caller's promise: sixteen blocks are readable.
        unsafe { s.load_halves(self.block.add(place::<F>(at))) }
    }

    #[inline(always)]
    unsafe fn word(&self, s: S, at: usize) -> S::I {
        // SAFETY: as above.
        unsafe { s.load_words(self.block.add(place::<F>(at))) }
    }
}

/// Where the block of a panel has the bytes at `at` of the blocks of its rows.
#[inline(always)]
fn place<F: Format>(at: usize) -> usize {
    let mut before = 0;
    for part in F::ORDER {
        if part.contains(&at) {
            return (before + at - part.start) * LANES;
        }
        before += part.len();
    }
    unreachable!("the order has every byte of a block")
}

/// Packs rows of whole blocks; `out` has a panel for each sixteen rows or less.
///
/// # Panics
/// If the lengths don't fit together.
pub(super) fn pack<F: Format>(rows: &[u8], row_bytes: usize, out: &mut [u8]) {
    assert_eq!(
        out.len(),
        (rows.len() / row_bytes).next_multiple_of(LANES) * row_bytes,
        "a panel for all rows"
    );
    for (rows, panel) in rows.chunks(LANES * row_bytes).zip(out.chunks_exact_mut(LANES * row_bytes)) {
        if rows.len() < panel.len() {
            panel.fill(0);
        }
        for (nth, block) in panel.chunks_exact_mut(LANES * F::BYTES).enumerate() {
            for (r, row) in rows.chunks_exact(row_bytes).enumerate() {
                pack_block::<F>(&row[nth * F::BYTES..][..F::BYTES], r, block);
            }
        }
    }
}

/// Writes row `r`'s block into the block of a panel.
fn pack_block<F: Format>(from: &[u8], r: usize, block: &mut [u8]) {
    words::<F>(|in_row, in_panel| {
        let (word, words) = (&from[in_row.clone()], &mut block[in_panel]);
        if F::BITS == Some(in_row.start) {
            set_bits(word, r, words);
        } else {
            copy_word(word, &mut words[r * word.len()..][..word.len()]);
        }
    });
}

/// Tells `each` every word of a block, and where the block of a panel has that word of all rows. Inlined: all places are
/// constants then.
#[inline(always)]
fn words<F: Format>(mut each: impl FnMut(Range<usize>, Range<usize>)) {
    let mut end = 0;
    for part in F::ORDER {
        let step = part.len().min(4);
        for nth in 0..part.len() / step {
            let start = part.start + nth * step;
            each(start..start + step, end..end + step * LANES);
            end += step * LANES;
        }
    }
}

/// Copies four bytes or two: lengths that the compiler knows are moves, others a call.
#[inline(always)]
fn copy_word(from: &[u8], to: &mut [u8]) {
    match (from.as_array::<4>(), to.as_mut_array::<4>()) {
        (Some(from), Some(to)) => *to = *from,
        _ => to.iter_mut().zip(from).take(2).for_each(|(to, from)| *to = *from),
    }
}

/// Spreads a word over eight masks, four bits to each, and leaves the bits of the other rows.
fn set_bits(word: &[u8], r: usize, masks: &mut [u8]) {
    for (j, mask) in masks.chunks_exact_mut(8).enumerate() {
        let bits = word[j / 2] >> (j % 2 * 4) & 15;
        let keep = 15 << ((r + 1) % 2 * 4);
        mask[r / 2] = mask[r / 2] & keep | bits << (r % 2 * 4);
    }
}

/// Restores row `r`'s block, as in the file, from the block of a panel.
fn unpack_block<F: Format>(block: &[u8], r: usize, to: &mut [u8]) {
    words::<F>(|in_row, in_panel| {
        let (word, words) = (&mut to[in_row.clone()], &block[in_panel]);
        if F::BITS == Some(in_row.start) {
            let nibble = |j: usize| words[8 * j + r / 2] >> (r % 2 * 4) & 15;
            (0..4).for_each(|i| word[i] = nibble(2 * i) | nibble(2 * i + 1) << 4);
        } else {
            copy_word(&words[r * word.len()..][..word.len()], word);
        }
    });
}

/// Decodes row `r` of a panel.
///
/// # Panics
/// If the lengths don't fit together.
pub(super) fn decode_row<F: Format>(dtype: DType, panel: &[u8], r: usize, out: &mut [f32]) {
    let (blocks, n) = (panel.chunks_exact(LANES * F::BYTES), F::GROUPS * GROUP);
    assert!(blocks.len() * n == out.len() && r < LANES, "a row of the panel");
    for (block, out) in blocks.zip(out.chunks_exact_mut(n)) {
        let mut bytes = [0; MAX_BLOCK];
        unpack_block::<F>(block, r, &mut bytes[..F::BYTES]);
        let decoded = minfer_tensor::decode_row(dtype, &bytes[..F::BYTES], out);
        debug_assert!(decoded.is_ok(), "a block of the format");
    }
}
