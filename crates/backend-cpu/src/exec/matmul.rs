//! Matrix products. Threads share out the rows of the weight; quantized weights meet int8 activations, which products of
//! one operand share.

use std::ops::Range;

use minfer_graph::{BackendError, NodeId, Op};
use minfer_tensor::DType;

use super::columns::ColumnWork;
use super::order::{Access, LiveRows, Span, Split};
use super::places::{Place, refused};
use super::prepare::{Preparer, Scratch, takes_int8};
use super::scratch::NodeScratch;
use super::{Floats, Run, Work};
use crate::kernels::{MatMul, ROW_UNIT, Share};

/// Sixteen rows of weights must be shorter than this, so that a kernel reaches them by 32-bit offsets.
const MAX_ROW_BYTES: usize = (1 << 31) / 16;

/// Parts of a product that a thread takes on average, where it takes one after the other.
const UNITS_PER_THREAD: usize = 8;

/// Int8 activations in the scratch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quantized {
    x: Span,
    rows: LiveRows,
    activations: Place,
    /// Distance between the threads' own copies; 0 if there is one for all.
    stride: usize,
}

impl Quantized {
    /// The rows `x` in the memory of a product.
    pub(super) fn of(x: Span, rows: LiveRows, scratch: &Scratch) -> Self {
        Self { x, rows, activations: scratch.shared, stride: scratch.layout.shared_stride }
    }

    /// Whether a step with these accesses leaves something else there, or in the operand.
    pub(super) fn is_overwritten(&self, accesses: &[Access]) -> bool {
        let memory = [self.x, self.activations.span()];
        accesses.iter().any(|access| memory.into_iter().any(|span| access.overwrites(span)))
    }

    /// Each thread uses its own copy; a shared one is read whole.
    fn split(&self, shared: Split) -> Split {
        if self.stride == 0 { shared } else { Split::Thread }
    }
}

pub(super) fn prepare(p: &mut Preparer<'_>, id: NodeId) -> Result<(), BackendError> {
    let node = p.get(id);
    let [w, x] = [node.inputs[0], node.inputs[1]];
    let weight = p.get(w);
    let int8 = takes_int8(&node.op, weight.dtype)?;
    let weights = p.operand(w)?;
    let (out, out_span) = p.result(id, &[])?;
    let row_bytes = weights.len.checked_div(weight.shape.rows).unwrap_or(0);
    if row_bytes >= MAX_ROW_BYTES {
        return Err(refused(id, &format!("has weight rows of {row_bytes} bytes, too long for the kernels")));
    }
    let rows = p.live_rows(id);
    let mut step = Product {
        dtype: weight.dtype,
        weights: weights.first,
        packed: p.row_in_panel(w),
        k: weight.shape.cols,
        out,
        x: std::ptr::null(),
        x_stride: 0,
        scratch: std::ptr::null_mut(),
        scratch_stride: 0,
    };
    let mut accesses = vec![Access::read(weights.span(), Split::Any)];
    if int8 {
        let scratch = p.scratch(id)?;
        let quantized = quantize(p, x, scratch)?;
        (step.x, step.x_stride) = (quantized.activations.first, quantized.stride);
        (step.scratch, step.scratch_stride) = (scratch.threads.first, scratch.layout.thread);
        accesses.push(Access::read(quantized.activations.span(), quantized.split(Split::Any)));
        accesses.push(Access::write(scratch.threads.span(), Split::Thread));
    } else {
        let (x, span) = p.floats(x)?;
        step.x = x.first.cast();
        accesses.push(Access::read(span, Split::Any));
    }
    let with = |split| [&accesses[..], &[Access::write(out_span, split)]].concat();
    if rows.shape.rows == 1 {
        p.push_columns(rows, (out.cols, row_bytes), with, step);
    } else {
        // Who waits for a processor has few rows, and holds up none of the others for long.
        let taken = p.counters(1).start;
        p.push(rows, &with(Split::Any), BatchProduct { product: step, taken });
    }
    Ok(())
}

/// Quantizes `x` into the scratch, unless it is there.
fn quantize(p: &mut Preparer<'_>, x: NodeId, scratch: Scratch) -> Result<Quantized, BackendError> {
    let ((floats, span), rows) = (p.floats(x)?, p.live_rows(x));
    let known = p.quantized.filter(|q| q.x == span && q.rows == rows && q.activations == scratch.shared);
    if let Some(quantized) = known {
        return Ok(quantized);
    }
    let quantized = Quantized::of(span, rows, &scratch);
    let stride = quantized.stride;
    let accesses = [
        Access::read(span, if stride == 0 { Split::Rows(rows) } else { Split::Any }),
        Access::write(scratch.shared.span(), quantized.split(Split::Rows(rows))),
    ];
    p.push(rows, &accesses, Quantize { x: floats, out: scratch.shared.first, stride });
    p.quantized = Some(quantized);
    Ok(quantized)
}

/// The first of the products that follow `x`, if they are all that reads it, and every thread quantizes it for itself.
pub(super) fn products_of(p: &Preparer<'_>, x: NodeId) -> Option<NodeId> {
    let (graph, threads) = (p.segment().graph, p.threads);
    let readers = graph.readers(x).count();
    let next: Vec<_> = p.work_after(x).take(readers).collect();
    let layout = |id| NodeScratch::of(graph, id, threads);
    let product = *next.first()?;
    let alike = next.iter().all(|&id| {
        let node = graph.node(id);
        let quantized = node.op == Op::MatMul && graph.node(node.inputs[0]).dtype.is_quantized();
        quantized && node.inputs[1] == x && layout(id).shared == layout(product).shared
    });
    let own = layout(product).shared_stride > 0 && !graph.outputs().contains(&x);
    (alike && own && next.len() == readers).then_some(product)
}

struct Quantize {
    x: Floats,
    out: *mut u8,
    stride: usize,
}

impl Work for Quantize {
    unsafe fn run(&self, run: &Run<'_>) {
        let (range, out) = match self.stride {
            0 => (run.rows(), self.out),
            stride => (0..run.live, self.out.wrapping_add(stride * run.team.index())),
        };
        // SAFETY: the scratch has room for all rows (once a thread, if there is a stride), threads write disjoint rows
        // or copies, and a row is whole groups of 32 because the weights' rows are.
        unsafe { run.kernels.quantize(self.x.first, run.live, self.x.cols, range, out) };
    }
}

struct Product {
    dtype: DType,
    weights: *const u8,
    packed: Option<usize>,
    k: usize,
    out: Floats,
    x: *const u8,
    x_stride: usize,
    scratch: *mut u8,
    scratch_stride: usize,
}

/// A product of many rows, of which threads take parts as they can.
struct BatchProduct {
    product: Product,
    /// Counter of the rows of the weight that are taken.
    taken: usize,
}

impl Work for BatchProduct {
    unsafe fn run(&self, run: &Run<'_>) {
        let rows = self.product.out.cols;
        let unit = rows.div_ceil(run.team.count() * UNITS_PER_THREAD).next_multiple_of(ROW_UNIT);
        let taken = &run.counters[self.taken];
        // SAFETY: the caller's promise; threads compute disjoint rows.
        unsafe { self.product.rows(run, Share::Rest { taken, rows, unit }) };
    }
}

impl ColumnWork for Product {
    unsafe fn columns(&self, run: &Run<'_>, cols: Range<usize>) {
        // SAFETY: the caller's promise.
        unsafe { self.rows(run, Share::Rows(cols)) };
    }
}

impl Product {
    /// Some rows of the weight.
    ///
    /// # Safety
    /// As [`Work::run`], and no other thread computes the same rows.
    unsafe fn rows(&self, run: &Run<'_>, rows: Share<'_>) {
        let thread = run.team.index();
        let product = MatMul {
            dtype: self.dtype,
            weights: self.weights,
            packed: self.packed,
            k: self.k,
            rows,
            tokens: run.live,
            x: self.x.wrapping_add(self.x_stride * thread),
            out: self.out.first,
            stride: self.out.cols,
            scratch: self.scratch.wrapping_add(self.scratch_stride * thread),
        };
        // SAFETY: `prepare` resolved weights, activations and result at their full extent and bounded the length of a
        // row; the caller promises disjoint rows, and each thread has scratch of its own.
        unsafe { run.kernels.matmul(product) };
    }
}
