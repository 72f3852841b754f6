//! Quantized weights times int8 activations.
//!
//! Every output is `acc = fma(isum * scale, d, acc)` over the groups of 32 in order, starting from 0, where
//! `isum` is the exact integer product sum; formats with a minimum go on with `acc = fma(min, d * sum, acc)`.
//! Sums start at [`BIAS`], which spares their conversion.
//! Lanes are output rows, so neither the split of rows over threads nor the number of tokens changes a bit.
//!
//! Weights lie in rows as in the file, or packed in panels. Few tokens: they go straight from their blocks into
//! products ([`Straight`], [`Packed`]). Many: some panels of sixteen rows are first expanded to bytes ([`Expand`]), then
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

/// Where integer sums start: their bits, read as f32, are `1.5 * 2^23 + sum`, since no sum reaches 2^22.
///
/// Times a factor of at most 22 bits, both terms are exact, and a fused subtraction of the first leaves
/// `sum * factor`, rounded once.
const BIAS: f32 = 12_582_912.0;

/// Bytes of panels that are expanded at a time, if two fit, so that activations are read once for all of them.
const EXPANDED: usize = 768 << 10;

/// Panels that are expanded at a time: an even number, for they are multiplied in pairs.
fn panels_at_a_time(groups: usize) -> usize {
    let pair = 2 * groups * size_of::<PanelGroup>();
    2 * (EXPANDED / pair.max(1)).max(1)
}

/// Scratch that [`MatMul`] needs on each thread.
pub(crate) fn scratch_bytes(layout: QuantLayout, tokens: usize) -> usize {
    let groups = layout.groups();
    let panels = if tokens < PANEL_FROM { 0 } else { panels_at_a_time(groups) };
    panels * groups * size_of::<PanelGroup>() + tokens * groups * 8
}

/// The factors of a group, as [`Form`] lists them, and what [`BIAS`] adds.
type Factors<S> = [<S as Simd>::F; 4];

/// The factors of a group.
#[inline(always)]
fn factors<S: Simd, F: Format>(s: S, head: &F::Head<S>, group: usize) -> Factors<S> {
    let f = F::factors(s, head, group);
    let biased = if F::Formula::FORM == Form::Halves { f[1] } else { f[0] };
    [f[0], f[1], f[2], s.mul(biased, s.splat(-BIAS))]
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
        let panels = if wide { panels_at_a_time(groups) } else { 1 };
        let expanded = if wide { panels * groups } else { 0 };
        let corrections = panel.wrapping_add(expanded).cast();
        s.run(Correct::<F> { m: m.clone(), out: corrections, format: PhantomData });
        // Of packed rows, whole panels are computed, though not all of their lanes may be asked for.
        let first = m.packed.unwrap_or(0);
        let mut share = m.rows.clone();
        while let Some(Range { start: mut row, end }) = share.next(panels * LANES) {
            while row < end {
                let skip = if m.packed.is_some() { (first + row) % LANES } else { 0 };
                let count = (panels * LANES - skip).min(end - row);
                let (blocks, format) = (groups / F::GROUPS, PhantomData);
                let base = m.weights.wrapping_add((first + row - skip) * row_bytes);
                let in_file = |panel: usize| {
                    let rows = Rows::new(row_bytes, (count - panel * LANES).min(LANES));
                    InFile::<F> { base: base.wrapping_add(panel * LANES * row_bytes), rows, blocks, format }
                };
                let in_panel = |panel: usize| InPanels::<F> {
                    base: base.wrapping_add(panel * LANES * row_bytes),
                    blocks,
                    format,
                };
                if wide {
                    for i in 0..(skip + count).div_ceil(LANES) {
                        let out = panel.wrapping_add(i * groups);
                        match m.packed {
                            Some(_) => s.run(Expand { w: in_panel(i), out, format }),
                            None => s.run(Expand { w: in_file(i), out, format }),
                        }
                    }
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
                        (true, _) => job.panels::<S, F::Formula>(s, panel),
                        (false, true) => job.packed::<S, F>(s, in_panel(0)),
                        (false, false) => job.straight::<S, F>(s, &in_file(0)),
                    }
                }
                row += count;
            }
        }
    }
}

/// What the minimum contributes per group and token, as f32; else where the integer sums start: [`BIAS`] less what the
/// zero point contributes. `[groups][w]`, or `[groups][w][2]` for both halves, tile by tile (at twice the token's
/// offset).
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
                        Form::Zero => *out.add(at) = biased(-F::ZERO * (first + second)),
                        Form::Signed => *out.add(at) = biased(-S::SIGNED_ZERO * (first + second)),
                        Form::Min => *out.add(at) = (*tile.d.add(at) * (first + second) as f32).to_bits(),
                        Form::Halves => {
                            *out.add(2 * at) = biased(-F::ZERO * first);
                            *out.add(2 * at + 1) = (-F::ZERO * second) as u32;
                        }
                    }
                }
            }
        }
    }
}

/// The bits of [`BIAS`] and a sum.
#[inline(always)]
fn biased(sum: i32) -> u32 {
    BIAS.to_bits().wrapping_add_signed(sum)
}

/// Some panels of sixteen rows times the tokens `from..from + T` of a tile.
#[derive(Clone, Copy)]
struct Job {
    tile: QuantTile,
    groups: usize,
    corrections: *const u32,
    out: *mut f32,
    stride: usize,
    /// Lanes of the first panel before the first row that is wanted.
    skip: usize,
    /// Rows that are wanted.
    count: usize,
    from: usize,
}

impl Job {
    /// Multiplies the whole tile, a few panels and tokens at a time.
    #[inline(always)]
    fn panels<S: Simd, F: Formula>(mut self, s: S, mut panel: *const PanelGroup) {
        let (mut left, end) = (self.count, self.out.wrapping_add(self.count));
        while left > 0 {
            let panels = S::PANEL_TILE.0.min((self.skip + left).div_ceil(LANES));
            self.count = left.min(panels * LANES - self.skip);
            self.out = end.wrapping_sub(left);
            if panels == 2 {
                self.tokens::<S, F, 2>(s, panel);
            } else {
                self.tokens::<S, F, 1>(s, panel);
            }
            panel = panel.wrapping_add(panels * self.groups);
            left -= self.count;
            self.skip = 0;
        }
    }

    /// Multiplies `P` panels with the whole tile.
    #[inline(always)]
    fn tokens<S: Simd, F: Formula, const P: usize>(mut self, s: S, panel: *const PanelGroup) {
        // Halves need more registers.
        let most = if F::FORM == Form::Halves { 4 } else { S::PANEL_TILE.1 };
        while self.from < self.tile.width {
            let (job, left) = (self, most.min(self.tile.width - self.from));
            self.from += match left {
                6.. => s.run(Panel::<F, P, 6> { job, panel, formula: PhantomData }),
                4.. => s.run(Panel::<F, P, 4> { job, panel, formula: PhantomData }),
                2.. => s.run(Panel::<F, P, 2> { job, panel, formula: PhantomData }),
                _ => s.run(Panel::<F, P, 1> { job, panel, formula: PhantomData }),
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

    /// Adds a group of `P` panels to the results `acc` of the tokens `at..at + T`.
    ///
    /// # Safety
    /// `at..at + T` must be tokens of a group of the tile, and the weights readable.
    #[inline(always)]
    unsafe fn add_group<S: Simd, F: Formula, const P: usize, const T: usize>(
        &self,
        s: S,
        acc: &mut [[S::F; T]; P],
        columns: &[impl Columns<S>; P],
        factors: &[Factors<S>; P],
        at: usize,
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            let (first, second) = if F::FORM == Form::Halves {
                (self.sums::<S, F, P, T>(s, columns, at, 0, 4), self.sums::<S, F, P, T>(s, columns, at, 4, 8))
            } else {
                (self.sums::<S, F, P, T>(s, columns, at, 0, 8), [[s.int(0); T]; P])
            };
            for p in 0..P {
                for t in 0..T {
                    let sums = [first[p][t], second[p][t]];
                    acc[p][t] = self.add_sums::<S, F>(s, acc[p][t], sums, &factors[p], at + t);
                }
            }
        }
    }

    /// Integer sums over columns `from..to` of a group.
    ///
    /// # Safety
    /// As for [`Job::add_group`].
    #[inline(always)]
    unsafe fn sums<S: Simd, F: Formula, const P: usize, const T: usize>(
        &self,
        s: S,
        columns: &[impl Columns<S>; P],
        at: usize,
        from: usize,
        to: usize,
    ) -> [[S::I; T]; P] {
        let mut sums = [[s.int(0); T]; P];
        // SAFETY: the caller's promise.
        unsafe {
            for sums in &mut sums {
                for (t, sum) in sums.iter_mut().enumerate() {
                    *sum = self.start::<S, F>(s, at + t, from / 4);
                }
            }
            let a = self.tile.q.add(at * GROUP);
            for j in from..to {
                for (sums, columns) in sums.iter_mut().zip(columns) {
                    let w = columns.column(s, j);
                    for (t, sum) in sums.iter_mut().enumerate() {
                        let a = s.splat4(a.add(t * GROUP + j * 4));
                        *sum = if F::FORM == Form::Signed {
                            s.dot_signed(*sum, w, a)
                        } else {
                            s.dot(*sum, w, a)
                        };
                    }
                }
            }
        }
        sums
    }

    /// Where the integer sum of a group, or of its second half, starts.
    ///
    /// # Safety
    /// `at` must be a group and token of the tile.
    #[inline(always)]
    unsafe fn start<S: Simd, F: Formula>(&self, s: S, at: usize, half: usize) -> S::I {
        // SAFETY: the caller's promise.
        let correction = |i: usize| s.int(unsafe { *self.corrections.add(i) } as i32);
        match F::FORM {
            Form::Zero => correction(at),
            Form::Signed if S::SIGNED_ZERO != 0 => correction(at),
            Form::Halves => correction(2 * at + half),
            Form::Signed | Form::Min => s.int(BIAS.to_bits() as i32),
        }
    }

    /// Adds the integer sums of a group to `acc`: the one order of f32 operations.
    ///
    /// # Safety
    /// `at` must be a group and token of the tile.
    #[inline(always)]
    unsafe fn add_sums<S: Simd, F: Formula>(
        &self,
        s: S,
        acc: S::F,
        [first, second]: [S::I; 2],
        factors: &Factors<S>,
        at: usize,
    ) -> S::F {
        let first = s.bits_to_f32(first);
        let scaled = if F::FORM == Form::Halves {
            // Integers below 2^24, hence exact.
            let sum = s.fma(first, factors[1], factors[3]);
            s.mul(s.fma(s.int_to_f32(second), factors[2], sum), factors[0])
        } else {
            s.fma(first, factors[0], factors[3])
        };
        // SAFETY: the caller's promise.
        unsafe {
            let acc = s.fma(scaled, s.splat(*self.tile.d.add(at)), acc);
            if F::FORM != Form::Min {
                return acc;
            }
            s.fma(factors[1], s.splat(f32::from_bits(*self.corrections.add(at))), acc)
        }
    }

    /// Writes the rows of a panel that are wanted, for token `t`.
    ///
    /// # Safety
    /// `out` must be writable there.
    #[inline(always)]
    unsafe fn store<S: Simd>(&self, s: S, panel: usize, t: usize, acc: S::F) {
        let (first, end) = (panel * LANES, self.skip + self.count);
        let skip = self.skip.saturating_sub(first);
        let count = (end - first).min(LANES) - skip;
        // SAFETY: the caller's promise; a partial panel goes through a buffer.
        unsafe {
            let out = self.out.add((self.from + t) * self.stride + (first + skip - self.skip));
            if count == LANES {
                return s.store(out, acc);
            }
            let mut lanes = [0.0; LANES];
            s.store(lanes.as_mut_ptr(), acc);
            std::ptr::copy_nonoverlapping(lanes.as_ptr().add(skip), out, count);
        }
    }
}
