//! Root-mean-square norm of rows.

use minfer_graph::{BackendError, NodeId};

use super::order::{Access, Split};
use super::prepare::Preparer;
use super::{Floats, Run, Work, matmul};

pub(super) fn prepare(p: &mut Preparer<'_>, id: NodeId, eps: f32) -> Result<(), BackendError> {
    if let Some(product) = matmul::products_of(p, id) {
        return matmul::prepare_norm(p, id, product, eps);
    }
    let node = p.get(id);
    let ((x, x_span), (w, w_span)) = (p.floats(node.inputs[0])?, p.floats(node.inputs[1])?);
    let (out, out_span) = p.result(id, &[])?;
    let rows = p.live_rows(id);
    let accesses = [
        Access::read(x_span, Split::Rows(rows)),
        Access::read(w_span, Split::Any),
        Access::write(out_span, Split::Rows(rows)),
    ];
    p.push(rows, &accesses, RmsNorm { x, w, out, eps });
    Ok(())
}

struct RmsNorm {
    x: Floats,
    w: Floats,
    out: Floats,
    eps: f32,
}

impl Work for RmsNorm {
    unsafe fn run(&self, run: &Run<'_>) {
        for row in run.rows() {
            // SAFETY: threads take disjoint rows, and the result overlaps no operand.
            let (out, x, w) = unsafe { (self.out.row_mut(row), self.x.row(row), self.w.row(0)) };
            run.kernels.rms_norm(out, x, self.out.cols, Some(w), self.eps);
        }
    }
}
