//! Many tokens: panels of sixteen rows expanded to bytes, multiplied with all tokens.
#![allow(unsafe_code, reason = "pointer kernels; `MatMul` states the contract")]

use super::super::format::{Format, Formula};
use super::super::simd::{LANES, Op, Simd};
use super::weights::{Columns, Weights};
use super::{Factors, Job, factors};
use std::marker::PhantomData;

/// A group of sixteen expanded rows: `q[j]` holds weights `4 * j..4 * j + 4` of each row.
#[repr(C, align(64))]
pub(super) struct PanelGroup {
    q: [[u8; 64]; 8],
    factors: [[f32; LANES]; 4],
}

/// Expands sixteen rows to bytes and f32 factors.
pub(super) struct Expand<F, W> {
    pub(super) w: W,
    pub(super) out: *mut PanelGroup,
    pub(super) format: PhantomData<F>,
}

impl<F: Format, W: Weights<F>> Op for Expand<F, W> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let w = &self.w;
        for block in 0..w.blocks() {
            // SAFETY: `MatMul` promises whole blocks in each row and scratch for all groups.
            unsafe {
                let head = w.head(s, block);
                for group in 0..F::GROUPS {
                    let out = self.out.add(block * F::GROUPS + group);
                    for (j, &q) in w.columns(s, block, group).iter().enumerate() {
                        s.store_bytes((&raw mut (*out).q[j]).cast(), q);
                    }
                    for (j, &f) in factors::<S, F>(s, &head, group).iter().enumerate() {
                        s.store((&raw mut (*out).factors[j]).cast(), f);
                    }
                }
            }
        }
    }
}

/// An expanded group as weights.
#[derive(Clone, Copy)]
struct Expanded(*const PanelGroup);

impl Expanded {
    #[inline(always)]
    unsafe fn factors<S: Simd>(self, s: S) -> Factors<S> {
        // SAFETY: the caller's promise.
        let load = |i: usize| unsafe { s.load((&raw const (*self.0).factors[i]).cast()) };
        [load(0), load(1), load(2), load(3)]
    }
}

impl<S: Simd> Columns<S> for Expanded {
    #[inline(always)]
    unsafe fn column(&self, s: S, j: usize) -> S::Bytes {
        // SAFETY: the caller's promise.
        unsafe { s.load_bytes((&raw const (*self.0).q[j]).cast()) }
    }
}

/// Products of `P` expanded panels with `T` tokens; returns the number of tokens.
pub(super) struct Panel<F, const P: usize, const T: usize> {
    pub(super) job: Job,
    pub(super) panel: *const PanelGroup,
    pub(super) formula: PhantomData<F>,
}

impl<F: Formula, const P: usize, const T: usize> Op for Panel<F, P, T> {
    type Output = usize;
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> usize {
        let job = &self.job;
        let mut acc = [[s.splat(0.0); T]; P];
        for g in 0..job.groups {
            let at = g * job.tile.width + job.from;
            // SAFETY: `MatMul` promises scratch and activations for all groups and tokens.
            unsafe {
                let mut panels = [Expanded(self.panel.add(g)); P];
                let mut factors = [panels[0].factors(s); P];
                for p in 1..P {
                    panels[p] = Expanded(self.panel.add(p * job.groups + g));
                    factors[p] = panels[p].factors(s);
                }
                job.add_group::<S, F, P, T>(s, &mut acc, &panels, &factors, at);
            }
        }
        for (p, acc) in acc.iter().enumerate() {
            for (t, &acc) in acc.iter().enumerate() {
                // SAFETY: `MatMul` promises the outputs.
                unsafe { job.store(s, p, t, acc) };
            }
        }
        T
    }
}
