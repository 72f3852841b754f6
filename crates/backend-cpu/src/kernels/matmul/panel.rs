//! Many tokens: sixteen rows expanded to bytes, multiplied with all tokens.
#![allow(unsafe_code, reason = "pointer kernels; `MatMul` states the contract")]

use super::super::format::{Format, Formula};
use super::super::simd::{LANES, Op, Simd};
use super::Job;
use super::weights::{Columns, Weights};
use std::marker::PhantomData;

/// A group of sixteen expanded rows: `q[j]` holds weights `4 * j..4 * j + 4` of each row.
#[repr(C, align(64))]
pub(super) struct PanelGroup {
    q: [[u8; 64]; 8],
    factors: [[f32; LANES]; 3],
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
                    for (j, &f) in F::factors(s, &head, group).iter().enumerate() {
                        s.store((&raw mut (*out).factors[j]).cast(), f);
                    }
                }
            }
        }
    }
}

/// An expanded group as weights.
struct Expanded(*const PanelGroup);

impl<S: Simd> Columns<S> for Expanded {
    #[inline(always)]
    unsafe fn column(&self, s: S, j: usize) -> S::Bytes {
        // SAFETY: the caller's promise.
        unsafe { s.load_bytes((&raw const (*self.0).q[j]).cast()) }
    }
}

/// Products of an expanded panel; returns the number of tokens.
pub(super) struct Panel<F, const T: usize> {
    pub(super) job: Job,
    pub(super) panel: *const PanelGroup,
    pub(super) formula: PhantomData<F>,
}

impl<F: Formula, const T: usize> Op for Panel<F, T> {
    type Output = usize;
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> usize {
        let job = &self.job;
        let mut acc = [s.splat(0.0); T];
        for g in 0..job.groups {
            let at = g * job.tile.width + job.from;
            // SAFETY: `MatMul` promises scratch and activations for all groups and tokens.
            unsafe {
                let panel = self.panel.add(g);
                let factors = [
                    s.load((&raw const (*panel).factors[0]).cast()),
                    s.load((&raw const (*panel).factors[1]).cast()),
                    s.load((&raw const (*panel).factors[2]).cast()),
                ];
                let sums = job.group_sums::<S, F, T>(s, &Expanded(panel), &factors, at);
                for t in 0..T {
                    acc[t] = job.add_group::<S, F>(s, acc[t], sums[t], &factors, at + t);
                }
            }
        }
        for (t, &acc) in acc.iter().enumerate() {
            // SAFETY: `MatMul` promises the outputs.
            unsafe { job.store(s, t, acc) };
        }
        T
    }
}
