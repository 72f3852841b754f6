//! Rows of a table, decoded.

use minfer_graph::{BackendError, NodeId};
use minfer_tensor::{DType, decode_row};

use super::order::{Access, Split};
use super::places::Place;
use super::prepare::{Preparer, takes_int8};
use super::{Floats, Run, Work};
use crate::kernels::{decode_packed_row, packed_bytes};

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
    let packed = p.row_in_panel(table_id);
    p.push(rows, &accesses, GetRows { table: place, packed, dtype: table.dtype, row_bytes, ids, out });
    Ok(())
}

struct GetRows {
    table: Place,
    packed: Option<usize>,
    dtype: DType,
    row_bytes: usize,
    ids: *const i32,
    out: Floats,
}

impl GetRows {
    /// Bytes of the table, those that fill its last panel included.
    fn len(&self) -> usize {
        let rows = self.table.len.checked_div(self.row_bytes).unwrap_or(0);
        self.packed.map_or(self.table.len, |first| packed_bytes(first + rows, self.row_bytes))
    }
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
            // SAFETY: the place's bytes are readable; a packed table has whole panels.
            let table = unsafe { std::slice::from_raw_parts(self.table.first, self.len()) };
            if let Some(first) = self.packed {
                decode_packed_row(self.dtype, table, self.row_bytes, first + id, out);
                continue;
            }
            // Ids were checked against the table's rows before the run.
            let encoded = &table[id * self.row_bytes..][..self.row_bytes];
            let decoded = decode_row(self.dtype, encoded, out);
            debug_assert!(decoded.is_ok(), "a row of the table has the length of a row of the result");
        }
    }
}
