//! Root-mean-square norm of rows. One row that only products read is normed and quantized by every thread for itself, and
//! nobody waits for it; nor for a norm before, whose result is added to the residual stream.

use minfer_graph::{BackendError, NodeId, Op, PostNorm};

use super::matmul::{self, Quantized};
use super::order::{Access, Split};
use super::prepare::Preparer;
use super::{Floats, Run, Work};

pub(super) fn prepare(p: &mut Preparer<'_>, id: NodeId) -> Result<(), BackendError> {
    if let Some(product) = matmul::products_of(p, id) {
        return prepare_own(p, None, id, product);
    }
    if let Some(stream) = stream_of(p, id)?
        && let Some(product) = matmul::products_of(p, stream.next)
    {
        return prepare_own(p, Some((id, stream)), stream.next, product);
    }
    let mut accesses = Vec::with_capacity(3);
    let norm = norm(p, id, &mut accesses)?;
    let (x, x_span) = p.floats(p.get(id).inputs[0])?;
    let (out, out_span) = p.result(id, &[])?;
    let rows = p.live_rows(id);
    accesses.push(Access::read(x_span, Split::Rows(rows)));
    accesses.push(Access::write(out_span, Split::Rows(rows)));
    p.push(rows, &accesses, RmsNorm { x, norm, out });
    Ok(())
}

/// What a norm multiplies with.
#[derive(Clone, Copy)]
pub(super) struct Norm {
    w: Floats,
    eps: f32,
}

/// What the norm `id` multiplies with; adds to `accesses` that all of it is read.
pub(super) fn norm(
    p: &mut Preparer<'_>,
    id: NodeId,
    accesses: &mut Vec<Access>,
) -> Result<Norm, BackendError> {
    let node = p.get(id);
    let Op::RmsNorm { eps } = node.op else { unreachable!("only norms come here") };
    let (w, span) = p.floats(node.inputs[1])?;
    accesses.push(Access::read(span, Split::Any));
    Ok(Norm { w, eps })
}

impl Norm {
    /// Norms a row, or a head.
    ///
    /// # Safety
    /// Nobody may write the factors.
    pub(super) unsafe fn apply(self, run: &Run<'_>, x: &[f32], out: &mut [f32]) {
        // SAFETY: the caller's promise.
        run.kernels.rms_norm(out, x, x.len(), Some(unsafe { self.w.row(0) }), self.eps);
    }
}

struct RmsNorm {
    x: Floats,
    norm: Norm,
    out: Floats,
}

impl Work for RmsNorm {
    unsafe fn run(&self, run: &Run<'_>) {
        for row in run.rows() {
            // SAFETY: threads take disjoint rows, and the result overlaps no operand.
            unsafe { self.norm.apply(run, self.x.row(row), self.out.row_mut(row)) };
        }
    }
}

/// Where a norm goes that all threads may compute for themselves, with the sum and the norm that come next: the sum isn't
/// written over what they read.
fn stream_of(p: &mut Preparer<'_>, id: NodeId) -> Result<Option<PostNorm>, BackendError> {
    let norm = p.segment().graph.post_norm(id);
    let Some(norm) = norm.filter(|norm| p.work_after(id).take(2).eq([norm.sum, norm.next])) else {
        return Ok(None);
    };
    let written = p.floats(norm.sum)?.1;
    let read = [p.floats(norm.delta)?.1, p.floats(norm.x)?.1];
    Ok(read.iter().all(|span| !span.overlaps(written)).then_some(norm))
}

/// The norm `id` of one row and the int8 form of its result, which is all that `product` and others read: their own memory
/// isn't used.
fn prepare_own(
    p: &mut Preparer<'_>,
    post: Option<(NodeId, PostNorm)>,
    id: NodeId,
    product: NodeId,
) -> Result<(), BackendError> {
    let mut accesses = Vec::with_capacity(8);
    let (rows, scratch) = (p.live_rows(id), p.scratch(product)?);
    let norm = norm(p, id, &mut accesses)?;
    let source = match post {
        None => {
            let (x, span) = p.floats(p.get(id).inputs[0])?;
            accesses.push(Access::read(span, Split::Any));
            Source::Row(x)
        }
        Some((norm, to)) => Source::Sum(sum(p, norm, to, &mut accesses)?),
    };
    accesses.push(Access::write(scratch.shared.span(), Split::Thread));
    accesses.push(Access::write(scratch.threads.span(), Split::Thread));
    let (_, span) = p.floats(id)?;
    let work = OwnNorm {
        source,
        norm,
        cols: p.get(id).shape.cols,
        out: scratch.shared.first,
        stride: scratch.layout.shared_stride,
        aside: scratch.threads.first,
        aside_stride: scratch.layout.thread,
    };
    p.push(rows, &accesses, work);
    if let Some((_, to)) = post {
        p.done.extend([to.sum, to.next]);
    }
    p.quantized = Some(Quantized::of(span, rows, &scratch));
    Ok(())
}

fn sum(
    p: &mut Preparer<'_>,
    id: NodeId,
    to: PostNorm,
    accesses: &mut Vec<Access>,
) -> Result<Sum, BackendError> {
    let norm = norm(p, id, accesses)?;
    let ((delta, delta_span), (x, x_span)) = (p.floats(to.delta)?, p.floats(to.x)?);
    let (sum, sum_span) = p.result(to.sum, &[id])?;
    accesses.push(Access::read(delta_span, Split::Any));
    accesses.push(Access::read(x_span, Split::Any));
    accesses.push(Access::write(sum_span, Split::Cols(p.live_rows(to.sum))));
    Ok(Sum { delta, norm, x, sum })
}

/// A norm and a sum that every thread computes, and of which each keeps its columns.
struct Sum {
    delta: Floats,
    norm: Norm,
    x: Floats,
    sum: Floats,
}

impl Sum {
    /// Computes it into `row`.
    ///
    /// # Safety
    /// As [`Work::run`].
    unsafe fn make(&self, run: &Run<'_>, row: &mut [f32]) {
        let cols = run.cols(row.len());
        // SAFETY: the caller's promise; threads write disjoint columns, of memory that none reads.
        unsafe {
            self.norm.apply(run, self.delta.row(0), row);
            run.kernels.add(row, self.x.row(0));
            self.sum.part_mut(0, cols.clone()).copy_from_slice(&row[cols]);
        }
    }
}

/// What is normed.
enum Source {
    /// This row.
    Row(Floats),
    /// One that is made first.
    Sum(Sum),
}

/// A row that every thread norms and quantizes for itself.
struct OwnNorm {
    source: Source,
    norm: Norm,
    cols: usize,
    out: *mut u8,
    stride: usize,
    /// Where each thread has two rows of its own.
    aside: *mut u8,
    aside_stride: usize,
}

impl Work for OwnNorm {
    unsafe fn run(&self, run: &Run<'_>) {
        let thread = run.team.index();
        let aside = self.aside.wrapping_add(self.aside_stride * thread).cast::<f32>();
        let out = self.out.wrapping_add(self.stride * thread);
        // SAFETY: `NodeScratch` has room for two rows and a quantized one, once a thread; a row is whole groups of 32
        // because the weights' rows are.
        unsafe {
            let [normed, made] =
                [0, 1].map(|nth| std::slice::from_raw_parts_mut(aside.add(nth * self.cols), self.cols));
            let x = match &self.source {
                Source::Row(x) => x.row(0),
                Source::Sum(sum) => {
                    sum.make(run, made);
                    made
                }
            };
            self.norm.apply(run, x, normed);
            run.kernels.quantize(normed.as_ptr(), 1, self.cols, 0..1, out);
        }
    }
}
