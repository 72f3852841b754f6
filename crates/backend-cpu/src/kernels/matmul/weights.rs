//! Where sixteen rows of weights lie: as in the file, or in a packed panel.
#![allow(unsafe_code, reason = "pointer kernels; `MatMul` states the contract")]

use super::super::format::Format;
use super::super::pack::{InPanel, InRows};
use super::super::simd::{LANES, PAIRS, Rows, Simd};
use std::marker::PhantomData;

/// A group of sixteen rows. A trait and no closure, which might not be compiled for the instructions of its caller.
pub(super) trait Columns<S: Simd> {
    /// The integers `4 * j..4 * j + 4` of each row.
    ///
    /// # Safety
    /// The weights must be readable.
    unsafe fn column(&self, s: S, j: usize) -> S::Bytes;
}

/// Sixteen rows of weights.
pub(super) trait Weights<F: Format> {
    /// Blocks of a row.
    fn blocks(&self) -> usize;

    /// The scales of the rows' blocks of this number.
    ///
    /// # Safety
    /// The blocks must be readable.
    unsafe fn head<S: Simd>(&self, s: S, block: usize) -> F::Head<S>;

    /// The integers of a group of that block: vectors of four consecutive ones a row.
    ///
    /// # Safety
    /// The blocks must be readable.
    unsafe fn columns<S: Simd>(&self, s: S, block: usize, group: usize) -> [S::Bytes; 8];
}

/// Sixteen rows in a packed panel.
#[derive(Clone, Copy)]
pub(super) struct InPanels<F> {
    pub(super) base: *const u8,
    pub(super) blocks: usize,
    pub(super) format: PhantomData<F>,
}

impl<F: Format> InPanels<F> {
    #[inline(always)]
    pub(super) fn block(&self, block: usize) -> *const u8 {
        self.base.wrapping_add(block * F::BYTES * LANES)
    }
}

impl<F: Format> Weights<F> for InPanels<F> {
    #[inline(always)]
    fn blocks(&self) -> usize {
        self.blocks
    }
    #[inline(always)]
    unsafe fn head<S: Simd>(&self, s: S, block: usize) -> F::Head<S> {
        // SAFETY: the caller's promise.
        unsafe { F::head(s, InPanel::<F> { block: self.block(block), format: PhantomData }) }
    }
    #[inline(always)]
    unsafe fn columns<S: Simd>(&self, s: S, block: usize, group: usize) -> [S::Bytes; 8] {
        let panel = self.block(block);
        macro_rules! columns {
            ($($j:literal)*) => {
                // SAFETY: the caller's promise.
                unsafe { [$(F::column(s, panel, group, $j)),*] }
            };
        }
        columns!(0 1 2 3 4 5 6 7)
    }
}

/// Sixteen rows as in the file.
#[derive(Clone, Copy)]
pub(super) struct InFile<F> {
    pub(super) base: *const u8,
    pub(super) rows: Rows,
    pub(super) blocks: usize,
    pub(super) format: PhantomData<F>,
}

impl<F: Format> Weights<F> for InFile<F> {
    #[inline(always)]
    fn blocks(&self) -> usize {
        self.blocks
    }
    #[inline(always)]
    unsafe fn head<S: Simd>(&self, s: S, block: usize) -> F::Head<S> {
        let block = self.base.wrapping_add(block * F::BYTES);
        // SAFETY: the caller's promise.
        unsafe { F::head(s, InRows::<F> { block, rows: &self.rows, format: PhantomData }) }
    }
    #[inline(always)]
    unsafe fn columns<S: Simd>(&self, s: S, block: usize, group: usize) -> [S::Bytes; 8] {
        // SAFETY: the caller's promise.
        s.transpose_bytes(unsafe { self.unpack(s, self.base.add(block * F::BYTES), group) })
    }
}

impl<F: Format> InFile<F> {
    /// The integers of a group of all rows, as [`PAIRS`].
    ///
    /// # Safety
    /// The rows' blocks at `block` must be readable.
    #[inline(always)]
    pub(super) unsafe fn unpack<S: Simd>(&self, s: S, block: *const u8, group: usize) -> [S::Bytes; 8] {
        macro_rules! pairs {
            ($($i:literal)*) => {
                // SAFETY: the caller's promise.
                [$(unsafe {
                    let (a, b) = PAIRS[$i];
                    F::unpack(s, block.add(self.rows.at[a]), block.add(self.rows.at[b]), group)
                }),*]
            };
        }
        pairs!(0 1 2 3 4 5 6 7)
    }
}
