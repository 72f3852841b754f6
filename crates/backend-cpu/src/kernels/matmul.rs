//! Quantized weights times int8 activations.
//!
//! Every output is `acc = fma(isum * scale, d, acc)` over the groups of 32 in order, starting from 0, where
//! `isum` is the exact integer product sum; formats with a minimum go on with `acc = fma(min, d * sum, acc)`.
//! Lanes are output rows, so neither the split of rows over threads nor the number of tokens changes a bit.
//!
//! Weights lie in rows as in the file, or packed in panels. Few tokens: they go straight from their blocks into
//! products ([`Straight`], [`Packed`]). Many: sixteen rows at a time are first expanded to bytes ([`Expand`]), then
//! multiplied with all tokens ([`Panel`]).
#![allow(unsafe_code, reason = "pointer kernels; `MatMul` states the contract")]

mod packed;
mod panel;
mod straight;
mod weights;

use super::format::{Form, Format, Formula};
use super::quantize::{GROUP, QuantLayout, QuantTile, TILE};
use super::share::Share;
use super::simd::{LANES, Op, Rows, Simd};
use packed::Packed;
use panel::{Expand, Panel, PanelGroup};
use std::marker::PhantomData;
use std::ops::Range;
use straight::Straight;
use weights::{Columns, InFile, InPanels};

/// From this many tokens on, expanding the weights first pays.
const PANEL_FROM: usize = 4;
const _: () = assert!(PANEL_FROM <= TILE);

/// `out[token * stride + row]` for some rows of a weight matrix and all tokens.
#[derive(Clone)]
pub(crate) struct MatMul<'a> {
    /// Rows, each a whole number of blocks, as in the file or packed.
    pub(crate) weights: *const u8,
    /// If they are packed, which row of the first panel is row 0.
    pub(crate) packed: Option<usize>,
    /// Rows to compute.
    pub(crate) rows: Share<'a>,
    pub(crate) layout: QuantLayout,
    pub(crate) tokens: usize,
    /// Quantized activations.
    pub(crate) acts: *mut u8,
    pub(crate) out: *mut f32,
    pub(crate) stride: usize,
    /// [`scratch_bytes`], aligned to 64.
    pub(crate) scratch: *mut u8,
}

/// Scratch that [`MatMul`] needs on each thread.
pub(crate) fn scratch_bytes(layout: QuantLayout, tokens: usize) -> usize {
    let panel = if tokens < PANEL_FROM { 0 } else { layout.groups() * size_of::<PanelGroup>() };
    panel + (tokens * layout.groups() * 8)
}

/// A [`MatMul`] with weights of one format.
pub(crate) struct QuantMatMul<'a, F>(pub(crate) MatMul<'a>, pub(crate) PhantomData<F>);

impl<F: Format> Op for QuantMatMul<'_, F> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let m = self.0;
        let groups = m.layout.groups();
        let row_bytes = groups / F::GROUPS * F::BYTES;
        let panel = m.scratch.cast::<PanelGroup>();
        let wide = m.tokens >= PANEL_FROM;
        let corrections = if wide { panel.wrapping_add(groups).cast() } else { m.scratch.cast::<u32>() };
        s.run(Correct::<F> { m: m.clone(), out: corrections, format: PhantomData });
        // Of packed rows, whole panels are computed, though not all of their lanes may be asked for.
        let first = m.packed.unwrap_or(0);
        let mut share = m.rows.clone();
        while let Some(Range { start: mut row, end }) = share.next(usize::MAX / 2) {
            while row < end {
                let skip = if m.packed.is_some() { (first + row) % LANES } else { 0 };
                let count = (LANES - skip).min(end - row);
                let base = m.weights.wrapping_add((first + row - skip) * row_bytes);
                let (blocks, format) = (groups / F::GROUPS, PhantomData);
                let rows = InFile::<F> { base, rows: Rows::new(row_bytes, count), blocks, format };
                let panels = InPanels::<F> { base, blocks, format };
                match (wide, m.packed.is_some()) {
                    (true, true) => s.run(Expand { w: panels, out: panel, format }),
                    (true, false) => s.run(Expand { w: rows, out: panel, format }),
                    (false, _) => {}
                }
                for i in 0..m.layout.tiles() {
                    let tile = m.layout.tile(m.acts, i);
                    let job = Job {
                        tile,
                        groups,
                        corrections: corrections.wrapping_add(tile.start * groups * 2),
                        out: m.out.wrapping_add(tile.start * m.stride + row),
                        stride: m.stride,
                        skip,
                        count,
                        from: 0,
                    };
                    match (wide, m.packed.is_some()) {
                        (true, _) => job.panel::<S, F::Formula>(s, panel),
                        (false, true) => job.packed::<S, F>(s, panels),
                        (false, false) => job.straight::<S, F>(s, &rows),
                    }
                }
                row += count;
            }
        }
    }
}

/// What the zero point or the minimum contributes, per group and token: `[groups][w]` of f32 or i32, or
/// `[groups][w][2]` of i32, tile by tile (at twice the token's offset).
struct Correct<'a, F> {
    m: MatMul<'a>,
    out: *mut u32,
    format: PhantomData<F>,
}

impl<F: Format> Op for Correct<'_, F> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let groups = self.m.layout.groups();
        for i in 0..self.m.layout.tiles() {
            let tile = self.m.layout.tile(self.m.acts, i);
            let out = self.out.wrapping_add(tile.start * groups * 2);
            for at in 0..groups * tile.width {
                // SAFETY: `at` lies within the tile; the scratch has two u32 per group and token.
                unsafe {
                    let [first, second] = *tile.sums.add(at);
                    match F::Formula::FORM {
                        Form::Zero => *out.add(at) = (-F::ZERO * (first + second)) as u32,
                        Form::Signed => *out.add(at) = (-S::SIGNED_ZERO * (first + second)) as u32,
                        Form::Min => *out.add(at) = (*tile.d.add(at) * (first + second) as f32).to_bits(),
                        Form::Halves => {
                            *out.add(2 * at) = (-F::ZERO * first) as u32;
                            *out.add(2 * at + 1) = (-F::ZERO * second) as u32;
                        }
                    }
                }
            }
        }
    }
}

/// Sixteen rows times the tokens `from..from + T` of a tile.
#[derive(Clone, Copy)]
struct Job {
    tile: QuantTile,
    groups: usize,
    corrections: *const u32,
    out: *mut f32,
    stride: usize,
    /// Lanes before the first row that is wanted.
    skip: usize,
    /// Rows that are wanted.
    count: usize,
    from: usize,
}

impl Job {
    /// Multiplies the whole tile, a few tokens at a time.
    #[inline(always)]
    fn panel<S: Simd, F: Formula>(mut self, s: S, panel: *const PanelGroup) {
        while self.from < self.tile.width {
            let (job, left) = (self, S::PANEL_TOKENS.min(self.tile.width - self.from));
            self.from += match left {
                12.. => s.run(Panel::<F, 12> { job, panel, formula: PhantomData }),
                8.. => s.run(Panel::<F, 8> { job, panel, formula: PhantomData }),
                4.. => s.run(Panel::<F, 4> { job, panel, formula: PhantomData }),
                2.. => s.run(Panel::<F, 2> { job, panel, formula: PhantomData }),
                _ => s.run(Panel::<F, 1> { job, panel, formula: PhantomData }),
            };
        }
    }

    /// The same, straight from the blocks; the tile has fewer than [`PANEL_FROM`] tokens.
    #[inline(always)]
    fn straight<S: Simd, F: Format>(self, s: S, w: &InFile<F>) {
        match self.tile.width {
            1 => s.run(Straight::<F, 1> { job: self, w: *w }),
            2 => s.run(Straight::<F, 2> { job: self, w: *w }),
            _ => s.run(Straight::<F, 3> { job: self, w: *w }),
        }
    }

    /// The same, from a packed panel.
    #[inline(always)]
    fn packed<S: Simd, F: Format>(self, s: S, w: InPanels<F>) {
        match self.tile.width {
            1 => s.run(Packed::<F, 1> { job: self, w }),
            2 => s.run(Packed::<F, 2> { job: self, w }),
            _ => s.run(Packed::<F, 3> { job: self, w }),
        }
    }

    /// Integer sums of a group for the tokens `at..at + T`, as f32 (exact), from vectors of four consecutive weights
    /// of sixteen rows.
    ///
    /// # Safety
    /// `at..at + T` must be tokens of a group of the tile, and the weights readable.
    #[inline(always)]
    unsafe fn group_sums<S: Simd, F: Formula, const T: usize>(
        &self,
        s: S,
        columns: &impl Columns<S>,
        factors: &[S::F; 3],
        at: usize,
    ) -> [S::F; T] {
        let mut sums = [s.splat(0.0); T];
        // SAFETY: the caller's promise.
        unsafe {
            if F::FORM == Form::Halves {
                let x = self.column_sums::<S, F, T>(s, columns, at, 0, 4);
                let y = self.column_sums::<S, F, T>(s, columns, at, 4, 8);
                for t in 0..T {
                    let x = s.mul(s.int_to_f32(x[t]), factors[1]);
                    sums[t] = s.fma(s.int_to_f32(y[t]), factors[2], x);
                }
            } else {
                let x = self.column_sums::<S, F, T>(s, columns, at, 0, 8);
                for t in 0..T {
                    sums[t] = s.int_to_f32(x[t]);
                }
            }
        }
        sums
    }

    /// Integer sums over columns `from..to` of a group for `T` tokens.
    ///
    /// # Safety
    /// As for [`Job::group_sums`].
    #[inline(always)]
    unsafe fn column_sums<S: Simd, F: Formula, const T: usize>(
        &self,
        s: S,
        columns: &impl Columns<S>,
        at: usize,
        from: usize,
        to: usize,
    ) -> [S::I; T] {
        let mut sums = [s.int(0); T];
        // SAFETY: the caller's promise.
        unsafe {
            let a = self.tile.q.add(at * GROUP);
            for (t, sum) in sums.iter_mut().enumerate() {
                *sum = self.start::<S, F>(s, at + t, from / 4);
            }
            for j in from..to {
                let w = columns.column(s, j);
                for (t, sum) in sums.iter_mut().enumerate() {
                    let a = s.splat4(a.add(t * GROUP + j * 4));
                    *sum = if F::FORM == Form::Signed { s.dot_signed(*sum, w, a) } else { s.dot(*sum, w, a) };
                }
            }
        }
        sums
    }

    /// Where the integer sum of a half of a group starts.
    ///
    /// # Safety
    /// `at` must be a group and token of the tile.
    #[inline(always)]
    unsafe fn start<S: Simd, F: Formula>(&self, s: S, at: usize, half: usize) -> S::I {
        // SAFETY: the caller's promise.
        unsafe {
            match F::FORM {
                Form::Zero => s.int(*self.corrections.add(at) as i32),
                Form::Signed if S::SIGNED_ZERO != 0 => s.int(*self.corrections.add(at) as i32),
                Form::Halves => s.int(*self.corrections.add(2 * at + half) as i32),
                Form::Signed | Form::Min => s.int(0),
            }
        }
    }

    /// Adds a group to `acc`: the one order of f32 operations.
    ///
    /// # Safety
    /// `at` must be a group and token of the tile.
    #[inline(always)]
    unsafe fn add_group<S: Simd, F: Formula>(
        &self,
        s: S,
        acc: S::F,
        sum: S::F,
        factors: &[S::F; 3],
        at: usize,
    ) -> S::F {
        // SAFETY: the caller's promise.
        unsafe {
            let acc = s.fma(s.mul(sum, factors[0]), s.splat(*self.tile.d.add(at)), acc);
            if F::FORM != Form::Min {
                return acc;
            }
            s.fma(factors[1], s.splat(f32::from_bits(*self.corrections.add(at))), acc)
        }
    }

    /// Writes the rows of token `t` that are wanted.
    ///
    /// # Safety
    /// `out` must be writable there.
    #[inline(always)]
    unsafe fn store<S: Simd>(&self, s: S, t: usize, acc: S::F) {
        // SAFETY: the caller's promise; a partial panel goes through a buffer.
        unsafe {
            let out = self.out.add((self.from + t) * self.stride);
            if self.count == LANES {
                return s.store(out, acc);
            }
            let mut lanes = [0.0; LANES];
            s.store(lanes.as_mut_ptr(), acc);
            std::ptr::copy_nonoverlapping(lanes.as_ptr().add(self.skip), out, self.count);
        }
    }
}
