//! Few tokens: products from a packed panel, which is read as one stream.
#![allow(unsafe_code, reason = "pointer kernels; `MatMul` states the contract")]

use super::super::format::Format;
use super::super::simd::{LANES, Op, Simd};
use super::weights::{Columns, InPanels, Weights};
use super::{Job, factors};
use std::marker::PhantomData;

/// How far ahead lines are prefetched, in bytes: two pages.
const AHEAD: usize = 8192;
/// Bytes of a line.
const LINE: usize = 64;

/// A group of a panel's block.
struct Group<F> {
    panel: *const u8,
    group: usize,
    format: PhantomData<F>,
}

impl<S: Simd, F: Format> Columns<S> for Group<F> {
    #[inline(always)]
    unsafe fn column(&self, s: S, j: usize) -> S::Bytes {
        // SAFETY: the caller's promise.
        unsafe { F::column(s, self.panel, self.group, j) }
    }
}

/// Products of a packed panel with all tokens of a tile.
pub(super) struct Packed<F, const T: usize> {
    pub(super) job: Job,
    pub(super) w: InPanels<F>,
}

impl<F: Format, const T: usize> Op for Packed<F, T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut acc = [[s.splat(0.0); T]];
        let mut block = 0;
        // SAFETY: `MatMul` promises whole blocks in each row, and every group and token of the tile.
        unsafe {
            // Two small blocks are whole lines, one isn't.
            while F::GROUPS == 1 && block + 2 <= self.w.blocks {
                self.add_block::<S, 0>(s, &mut acc, block);
                self.add_block::<S, 1>(s, &mut acc, block + 1);
                block += 2;
            }
            while block < self.w.blocks {
                self.add_block::<S, 0>(s, &mut acc, block);
                block += 1;
            }
        }
        for (t, &acc) in acc[0].iter().enumerate() {
            // SAFETY: `MatMul` promises the outputs.
            unsafe { self.job.store(s, 0, t, acc) };
        }
    }
}

impl<F: Format, const T: usize> Packed<F, T> {
    /// Adds a block to the results; it is the one of number `NTH` since a line began with a block.
    ///
    /// # Safety
    /// There must be such a block of each row, and its groups of each token.
    #[inline(always)]
    unsafe fn add_block<S: Simd, const NTH: usize>(&self, s: S, acc: &mut [[S::F; T]; 1], block: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            let head = self.w.head(s, block);
            // Unrolled, so that the head stays in registers.
            macro_rules! groups {
                ($($group:literal)*) => {$(
                    if $group < F::GROUPS {
                        let before = NTH * LANES * F::BYTES;
                        let (at, bytes) = (LANES * F::BYTES / F::GROUPS * $group, LANES * F::BYTES / F::GROUPS);
                        fetch(s, self.w.block(block).wrapping_sub(before), before + at, bytes);
                        self.add_group(s, acc, &head, block, $group);
                    }
                )*};
            }
            groups!(0 1 2 3 4 5 6 7);
        }
    }

    /// Adds a group of a block to the results.
    ///
    /// # Safety
    /// There must be such a group of each row and token.
    #[inline(always)]
    unsafe fn add_group<S: Simd>(
        &self,
        s: S,
        acc: &mut [[S::F; T]; 1],
        head: &F::Head<S>,
        block: usize,
        group: usize,
    ) {
        let (job, panel) = (&self.job, self.w.block(block));
        let factors = factors::<S, F>(s, head, group);
        let at = (block * F::GROUPS + group) * job.tile.width;
        let columns = Group::<F> { panel, group, format: PhantomData };
        // SAFETY: the caller's promise.
        unsafe { job.add_group::<S, F::Formula, 1, T>(s, acc, &[columns], &[factors], at) };
    }
}

/// Hints that lines [`AHEAD`] will be needed: those that begin in `len` bytes of a stream of them, `at` bytes from where a
/// line begins. A processor has room for some sixteen on their way.
#[inline(always)]
fn fetch<S: Simd>(s: S, stream: *const u8, at: usize, len: usize) {
    for line in at.div_ceil(LINE)..(at + len).div_ceil(LINE) {
        s.prefetch(stream.wrapping_add(AHEAD + line * LINE));
    }
}
