//! Rows into a state.

use minfer_graph::{BackendError, NodeId};
use minfer_tensor::DType;

use super::order::{Access, Split};
use super::places::{Place, refused, unsupported};
use super::prepare::Preparer;
use super::{Floats, Run, Work};
use crate::spec::is_state_type;

pub(super) fn prepare(p: &mut Preparer<'_>, id: NodeId) -> Result<(), BackendError> {
    let node = p.get(id);
    let [state_id, x_id, positions] = [node.inputs[0], node.inputs[1], node.inputs[2]];
    let dtype = p.get(state_id).dtype;
    if !is_state_type(dtype) {
        return Err(unsupported(&node.op, dtype));
    }
    let (state, (x, x_span)) = (p.state(state_id)?, p.floats(x_id)?);
    if state.span().overlaps(x_span) {
        return Err(refused(id, &format!("would overwrite its operand {x_id}")));
    }
    let rows = p.live_rows(x_id);
    let (positions, positions_span) = p.row_numbers(positions, id, rows, node.shape.rows)?;
    // Two rows may name one position: a thread that writes columns of all rows leaves the last. One row can't.
    let split = if rows.shape.rows == 1 { Split::Rows(rows) } else { Split::Cols(rows) };
    let accesses = [
        Access::read(x_span, split),
        Access::read(positions_span, Split::Any),
        Access::write(state.span(), Split::Any),
    ];
    p.push(rows, &accesses, WriteRows { x, positions, state, dtype, by_rows: rows.shape.rows == 1 });
    Ok(())
}

struct WriteRows {
    x: Floats,
    positions: *const i32,
    state: Place,
    dtype: DType,
    by_rows: bool,
}

impl Work for WriteRows {
    unsafe fn run(&self, run: &Run<'_>) {
        let (rows, cols) =
            if self.by_rows { (run.rows(), 0..self.x.cols) } else { (0..run.live, run.cols(self.x.cols)) };
        for row in rows {
            // SAFETY: the column has a position for each row.
            let Ok(position) = usize::try_from(unsafe { *self.positions.add(row) }) else { continue };
            let first = position * self.x.cols + cols.start;
            // SAFETY: positions were checked against the state's rows before the run; threads write disjoint columns,
            // or there is one row.
            unsafe {
                let x = self.x.part(row, cols.clone());
                if self.dtype == DType::F16 {
                    let out = self.state.first.cast::<u16>().add(first);
                    run.kernels.to_f16(std::slice::from_raw_parts_mut(out, x.len()), x);
                } else {
                    let out = self.state.first.cast::<f32>().add(first);
                    std::slice::from_raw_parts_mut(out, x.len()).copy_from_slice(x);
                }
            }
        }
    }
}
