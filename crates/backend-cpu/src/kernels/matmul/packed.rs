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
        for block in 0..self.w.blocks {
            // SAFETY: `MatMul` promises whole blocks in each row, and every group and token of the tile.
            unsafe {
                let head = self.w.head(s, block);
                // Unrolled, so that the head stays in registers.
                macro_rules! groups {
                    ($($group:literal)*) => {$(
                        if $group < F::GROUPS {
                            self.add_group(s, &mut acc, &head, block, $group);
                        }
                    )*};
                }
                groups!(0 1 2 3 4 5 6 7);
            }
        }
        for (t, &acc) in acc[0].iter().enumerate() {
            // SAFETY: `MatMul` promises the outputs.
            unsafe { self.job.store(s, 0, t, acc) };
        }
    }
}

impl<F: Format, const T: usize> Packed<F, T> {
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
        // The lines that begin in as many bytes as the group has: a processor has room for some sixteen on their way.
        let bytes = LANES * F::BYTES / F::GROUPS;
        let (of, at) = if F::GROUPS == 1 { (self.w.base, block * bytes) } else { (panel, group * bytes) };
        for line in at.div_ceil(LINE)..(at + bytes).div_ceil(LINE) {
            s.prefetch(of.wrapping_add(AHEAD + line * LINE));
        }
        let factors = factors::<S, F>(s, head, group);
        let at = (block * F::GROUPS + group) * job.tile.width;
        let columns = Group::<F> { panel, group, format: PhantomData };
        // SAFETY: the caller's promise.
        unsafe { job.add_group::<S, F::Formula, 1, T>(s, acc, &[columns], &[factors], at) };
    }
}
