//! Rows of a table, decoded.

use minfer_graph::{BackendError, NodeId};
use minfer_tensor::{DType, decode_row};

use super::order::{Access, Split};
use super::places::Place;
use super::prepare::{Preparer, takes_int8};
use super::{Floats, Run, Work};

pub(super) fn prepare(p: &mut Preparer<'_>, id: NodeId) -> Result<(), BackendError> {
    let node = p.get(id);
    let [table_id, ids] = [node.inputs[0], node.inputs[1]];
    let table = p.get(table_id);
    takes_int8(&node.op, table.dtype)?;
    let place = p.operand(table_id)?;
    let (out, out_span) = p.result(id, &[])?;
    let rows = p.live_rows(id);
    let (ids, ids_span) = p.row_numbers(ids, id, rows, table.shape.rows)?;
    let accesses = [
        Access::read(place.span(), Split::Any),
        Access::read(ids_span, Split::Any),
        Access::write(out_span, Split::Rows(rows)),
    ];
    let row_bytes = place.len.checked_div(table.shape.rows).unwrap_or(0);
    p.push(rows, &accesses, GetRows { table: place, dtype: table.dtype, row_bytes, ids, out });
    Ok(())
}

struct GetRows {
    table: Place,
    dtype: DType,
    row_bytes: usize,
    ids: *const i32,
    out: Floats,
}

impl Work for GetRows {
    unsafe fn run(&self, run: &Run<'_>) {
        for row in run.rows() {
            // SAFETY: threads take disjoint rows; the column has an id for each.
            let (out, id) = unsafe { (self.out.row_mut(row), *self.ids.add(row)) };
            let Ok(id) = usize::try_from(id) else {
                out.fill(0.0);
                continue;
            };
            // SAFETY: ids were checked against the table's rows before the run.
            let encoded = unsafe {
                std::slice::from_raw_parts(self.table.first.add(id * self.row_bytes), self.row_bytes)
            };
            let decoded = decode_row(self.dtype, encoded, out);
            debug_assert!(decoded.is_ok(), "a row of the table has the length of a row of the result");
        }
    }
}
