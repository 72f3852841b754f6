//! Operations on each element: sums, gates, constants. They take the split of what they read, so that after a product
//! each thread goes on with the columns it has just computed, without a barrier.

use std::ops::Range;

use minfer_graph::{Activation, BackendError, NodeId, Op};

use super::columns::ColumnWork;
use super::order::{Access, LiveRows, Span, Split};
use super::prepare::Preparer;
use super::{Floats, Run, Work};
use crate::kernels::Kernels;

/// Floats of an operand that are set aside while the result replaces them.
const BLOCK: usize = 64;

type ZipKernel = fn(&Kernels, &mut [f32], &[f32]);

pub(super) fn prepare_zip(p: &mut Preparer<'_>, id: NodeId) -> Result<(), BackendError> {
    let node = p.get(id);
    let [a_id, b_id] = [node.inputs[0], node.inputs[1]];
    let ((a, a_span), (b, b_span)) = (p.floats(a_id)?, p.floats(b_id)?);
    let (out, out_span) = p.result(id, &[a_id, b_id])?;
    let rows = p.live_rows(id);
    let b_rows = p.live_rows(b_id);
    let kernel: ZipKernel = match node.op {
        Op::Glu(Activation::Silu) => Kernels::silu_mul,
        Op::Glu(Activation::GeluTanh) => Kernels::gelu_mul,
        _ => Kernels::add,
    };
    let split = split_of(p, rows, &[a_span, b_span]);
    let b_is_row = b_rows.shape.rows == 1;
    let accesses = |split| {
        let b_split = if b_rows == rows { split } else { Split::Any };
        vec![Access::read(a_span, split), Access::read(b_span, b_split), Access::write(out_span, split)]
    };
    push(p, rows, accesses, Elements { of: Zip { a, b, b_is_row, out, kernel }, split, cols: out.cols });
    Ok(())
}

pub(super) fn prepare_map(p: &mut Preparer<'_>, id: NodeId) -> Result<(), BackendError> {
    let node = p.get(id);
    let (x, x_span) = p.floats(node.inputs[0])?;
    let (out, out_span) = p.result(id, &[node.inputs[0]])?;
    let rows = p.live_rows(id);
    let split = split_of(p, rows, &[x_span]);
    let kernel = match node.op {
        Op::Scale { factor } => MapKernel::Scale(factor),
        Op::Softcap { cap } => MapKernel::Softcap(cap),
        _ => unreachable!("two operations map one operand"),
    };
    let accesses = |split| vec![Access::read(x_span, split), Access::write(out_span, split)];
    push(p, rows, accesses, Elements { of: Map { x, out, kernel }, split, cols: out.cols });
    Ok(())
}

/// Appends a step; one row's goes on with columns that were just made.
fn push(
    p: &mut Preparer<'_>,
    rows: LiveRows,
    accesses: impl Fn(Split) -> Vec<Access>,
    work: Elements<impl Part + 'static>,
) {
    if rows.shape.rows == 1 && work.split == Split::Cols(rows) {
        p.push_columns(rows, (work.cols, 0), accesses, work);
    } else {
        p.push(rows, &accesses(work.split), work);
    }
}

/// Rows if an operand was just written by rows; else columns.
fn split_of(p: &Preparer<'_>, rows: LiveRows, operands: &[Span]) -> Split {
    let by_rows = operands.iter().any(|&span| p.pending(span, Split::Rows(rows)));
    if by_rows { Split::Rows(rows) } else { Split::Cols(rows) }
}

/// What is done to each element.
trait Part {
    /// Does it to some columns of a row.
    ///
    /// # Safety
    /// The part must exist, and no other thread may use this part of the result. An operand is the result itself or does
    /// not overlap it.
    unsafe fn part(&self, kernels: &Kernels, row: usize, cols: Range<usize>);
}

/// The elements of all rows.
struct Elements<P> {
    of: P,
    split: Split,
    cols: usize,
}

impl<P: Part> Work for Elements<P> {
    unsafe fn run(&self, run: &Run<'_>) {
        let (rows, cols) = match self.split {
            Split::Rows(_) => (run.rows(), 0..self.cols),
            _ => (0..run.live, run.cols(self.cols)),
        };
        for row in rows {
            // SAFETY: threads take disjoint parts, and an operand is the result itself or does not overlap it.
            unsafe { self.of.part(run.kernels, row, cols.clone()) };
        }
    }
}

impl<P: Part> ColumnWork for Elements<P> {
    unsafe fn columns(&self, run: &Run<'_>, cols: Range<usize>) {
        // SAFETY: the caller's promise; there is one row.
        unsafe { self.of.part(run.kernels, 0, cols) };
    }
}

struct Zip {
    a: Floats,
    b: Floats,
    b_is_row: bool,
    out: Floats,
    kernel: ZipKernel,
}

impl Part for Zip {
    unsafe fn part(&self, kernels: &Kernels, row: usize, cols: Range<usize>) {
        let b_row = if self.b_is_row { 0 } else { row };
        if self.b.first == self.out.first {
            // SAFETY: the caller's promise.
            return unsafe { self.replace_b(kernels, row, cols) };
        }
        // SAFETY: the caller's promise; the result does not overlap `b`.
        unsafe {
            copy_unless_same(self.a, self.out, row, cols.clone());
            (self.kernel)(kernels, self.out.part_mut(row, cols.clone()), self.b.part(b_row, cols));
        }
    }
}

impl Zip {
    /// The same if the result replaces `b`: block by block, `b` set aside.
    ///
    /// # Safety
    /// As for [`Part::part`].
    unsafe fn replace_b(&self, kernels: &Kernels, row: usize, cols: Range<usize>) {
        for start in cols.clone().step_by(BLOCK) {
            let cols = start..cols.end.min(start + BLOCK);
            let mut aside = [0.0; BLOCK];
            let b = &mut aside[..cols.len()];
            // SAFETY: the caller's promise; the borrow of `b` ends before the result is written.
            unsafe {
                b.copy_from_slice(self.b.part(row, cols.clone()));
                copy_unless_same(self.a, self.out, row, cols.clone());
                (self.kernel)(kernels, self.out.part_mut(row, cols), b);
            }
        }
    }
}

enum MapKernel {
    Scale(f32),
    Softcap(f32),
}

struct Map {
    x: Floats,
    out: Floats,
    kernel: MapKernel,
}

impl Part for Map {
    unsafe fn part(&self, kernels: &Kernels, row: usize, cols: Range<usize>) {
        // SAFETY: the caller's promise.
        let out = unsafe {
            copy_unless_same(self.x, self.out, row, cols.clone());
            self.out.part_mut(row, cols)
        };
        match self.kernel {
            MapKernel::Scale(factor) => kernels.scale(out, factor),
            MapKernel::Softcap(cap) => kernels.softcap(out, cap),
        }
    }
}

/// Copies a part of a row, unless both are one memory.
///
/// # Safety
/// The part must exist in both; they are equal or do not overlap, and nobody else uses the destination.
pub(super) unsafe fn copy_unless_same(from: Floats, to: Floats, row: usize, cols: Range<usize>) {
    if from.first != to.first {
        // SAFETY: the caller's promise.
        unsafe { to.part_mut(row, cols.clone()).copy_from_slice(from.part(row, cols)) };
    }
}
