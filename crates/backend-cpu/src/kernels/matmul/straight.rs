//! Few tokens: products straight from the blocks.
#![allow(unsafe_code, reason = "pointer kernels; `MatMul` states the contract")]

use super::super::format::{Form, Format, Formula};
use super::super::quantize::GROUP;
use super::super::simd::{LANES, Op, Simd};
use super::weights::{InFile, Weights};
use super::{Job, factors};

/// Products straight from GGUF blocks.
pub(super) struct Straight<F, const T: usize> {
    pub(super) job: Job,
    pub(super) w: InFile<F>,
}

impl<F: Format, const T: usize> Op for Straight<F, T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (job, w) = (&self.job, &self.w);
        let next = w.base.wrapping_add(w.blocks * F::BYTES * LANES);
        let mut acc = [s.splat(0.0); T];
        for block in 0..w.blocks {
            for line in 0..(LANES * F::BYTES).div_ceil(64) {
                s.prefetch(next.wrapping_add(block * LANES * F::BYTES + line * 64));
            }
            // SAFETY: `MatMul` promises whole blocks in each row, and every group and token of the tile.
            unsafe {
                let p = w.base.add(block * F::BYTES);
                let head = w.head(s, block);
                for group in 0..F::GROUPS {
                    let q = w.unpack(s, p, group);
                    let factors = factors::<S, F>(s, &head, group);
                    for (t, acc) in acc.iter_mut().enumerate() {
                        let at = (block * F::GROUPS + group) * job.tile.width + t;
                        let sums = group_sums::<S, F::Formula>(s, job, &q, at);
                        *acc = job.add_sums::<S, F::Formula>(s, *acc, sums, &factors, at);
                    }
                }
            }
        }
        for (t, &acc) in acc.iter().enumerate() {
            // SAFETY: `MatMul` promises the outputs.
            unsafe { job.store(s, 0, t, acc) };
        }
    }
}

/// The integer sums of a group in each row.
///
/// # Safety
/// `at` must be a group and token of the tile.
#[inline(always)]
unsafe fn group_sums<S: Simd, F: Formula>(s: S, job: &Job, q: &[S::Bytes; 8], at: usize) -> [S::I; 2] {
    // SAFETY: the caller's promise.
    let (a, first, second) = unsafe {
        let a = s.splat32(job.tile.q.add(at * GROUP));
        (a, job.start::<S, F>(s, at, 0), job.start::<S, F>(s, at, 1))
    };
    macro_rules! dots {
        ($($i:literal)*) => {
            [$(if F::FORM == Form::Signed { s.dot_signed(s.int(0), q[$i], a) } else { s.dot(s.int(0), q[$i], a) }),*]
        };
    }
    let [x, y] = s.sum_halves(dots!(0 1 2 3 4 5 6 7));
    match F::FORM {
        Form::Halves => [s.int_add(x, first), s.int_add(y, second)],
        _ => [s.int_add(s.int_add(x, y), first), second],
    }
}
