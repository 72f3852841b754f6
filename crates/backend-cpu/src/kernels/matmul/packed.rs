//! Few tokens: products from a packed panel, which is read as one stream.
#![allow(unsafe_code, reason = "pointer kernels; `MatMul` states the contract")]

use super::super::format::Format;
use super::super::simd::{LANES, Op, Simd};
use super::Job;
use super::weights::{Columns, InPanels, Weights};
use std::marker::PhantomData;

/// How far ahead lines are prefetched, in bytes: a page.
const AHEAD: usize = 4096;

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
        let (job, w) = (&self.job, &self.w);
        let mut acc = [s.splat(0.0); T];
        for block in 0..w.blocks {
            // SAFETY: `MatMul` promises whole blocks in each row, and every group and token of the tile.
            unsafe {
                let (head, panel) = (w.head(s, block), w.block(block));
                for group in 0..F::GROUPS {
                    // A few at a time: a processor has room for some sixteen lines on their way.
                    let lines = (LANES * F::BYTES).div_ceil(64 * F::GROUPS);
                    for line in 0..lines {
                        s.prefetch(panel.wrapping_add(AHEAD + (group * lines + line) * 64));
                    }
                    let factors = F::factors(s, &head, group);
                    let at = (block * F::GROUPS + group) * job.tile.width;
                    let columns = Group::<F> { panel, group, format: PhantomData };
                    let sums = job.group_sums::<S, F::Formula, T>(s, &columns, &factors, at);
                    for t in 0..T {
                        acc[t] = job.add_group::<S, F::Formula>(s, acc[t], sums[t], &factors, at + t);
                    }
                }
            }
        }
        for (t, &acc) in acc.iter().enumerate() {
            // SAFETY: `MatMul` promises the outputs.
            unsafe { job.store(s, t, acc) };
        }
    }
}
