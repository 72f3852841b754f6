//! Many tokens: sixteen rows expanded to bytes, multiplied with all tokens.
#![allow(unsafe_code, reason = "pointer kernels; `MatMul` states the contract")]

use super::super::format::{Form, Format, Formula};
use super::super::quantize::GROUP;
use super::super::simd::{LANES, Op, Simd};
use super::{Job, Weights};
use std::marker::PhantomData;

/// A group of sixteen expanded rows: `q[j]` holds weights `4 * j..4 * j + 4` of each row.
#[repr(C, align(64))]
pub(super) struct PanelGroup {
    q: [[u8; 64]; 8],
    factors: [[f32; LANES]; 3],
}

/// Expands sixteen rows to bytes and f32 factors.
pub(super) struct Expand<F> {
    pub(super) w: Weights<F>,
    pub(super) out: *mut PanelGroup,
}

impl<F: Format> Op for Expand<F> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let w = &self.w;
        for block in 0..w.blocks {
            // SAFETY: `MatMul` promises whole blocks in each row and scratch for all groups.
            unsafe {
                let p = w.base.add(block * F::BYTES);
                let head = F::head(s, p, &w.rows);
                for group in 0..F::GROUPS {
                    let out = self.out.add(block * F::GROUPS + group);
                    let q = s.transpose_bytes(w.unpack(s, p, group));
                    for (j, &q) in q.iter().enumerate() {
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
                let mut sum = [s.splat(0.0); T];
                if F::FORM == Form::Halves {
                    let x = panel_sums::<S, F, T>(s, job, panel, at, 0, 4);
                    let y = panel_sums::<S, F, T>(s, job, panel, at, 4, 8);
                    for t in 0..T {
                        let x = s.mul(s.int_to_f32(x[t]), factors[1]);
                        sum[t] = s.fma(s.int_to_f32(y[t]), factors[2], x);
                    }
                } else {
                    let x = panel_sums::<S, F, T>(s, job, panel, at, 0, 8);
                    for t in 0..T {
                        sum[t] = s.int_to_f32(x[t]);
                    }
                }
                for t in 0..T {
                    acc[t] = job.add_group::<S, F>(s, acc[t], sum[t], &factors, at + t);
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

/// Integer sums of bytes `4 * from..4 * to` of a group for `T` tokens.
///
/// # Safety
/// `at..at + T` must be tokens of a group of the tile.
#[inline(always)]
unsafe fn panel_sums<S: Simd, F: Formula, const T: usize>(
    s: S,
    job: &Job,
    panel: *const PanelGroup,
    at: usize,
    from: usize,
    to: usize,
) -> [S::I; T] {
    let mut sums = [s.int(0); T];
    // SAFETY: the caller's promise.
    unsafe {
        let a = job.tile.q.add(at * GROUP);
        for (t, sum) in sums.iter_mut().enumerate() {
            *sum = job.start::<S, F>(s, at + t, from / 4);
        }
        for j in from..to {
            let w = s.load_bytes((&raw const (*panel).q[j]).cast());
            for (t, sum) in sums.iter_mut().enumerate() {
                let a = s.splat4(a.add(t * GROUP + j * 4));
                *sum = if F::FORM == Form::Signed { s.dot_signed(*sum, w, a) } else { s.dot(*sum, w, a) };
            }
        }
    }
    sums
}
