//! Rows into a state, rounded to its type.

use std::ops::Range;

use minfer_graph::{BackendError, NodeId};
use minfer_tensor::DType;
use minfer_tensor::quant::{Q8_0, QK};

use super::order::{Access, Split};
use super::places::{Place, refused, unsupported};
use super::prepare::Preparer;
use super::{Floats, Run, Work};
use crate::kernels::{KEY_BLOCK, ROW_UNIT};
use crate::spec::head_unit;

pub(super) fn prepare(p: &mut Preparer<'_>, id: NodeId) -> Result<(), BackendError> {
    let node = p.get(id);
    let [state_id, x_id, positions] = [node.inputs[0], node.inputs[1], node.inputs[2]];
    let dtype = p.get(state_id).dtype;
    if head_unit(dtype).is_none() {
        return Err(unsupported(&node.op, dtype));
    }
    let (state, (x, x_span)) = (p.state(state_id)?, p.floats(x_id)?);
    if state.span().overlaps(x_span) {
        return Err(refused(id, &format!("would overwrite its operand {x_id}")));
    }
    let rows = p.live_rows(x_id);
    let (positions, positions_span) = p.row_numbers(positions, id, rows, node.shape.rows)?;
    // Two rows may name one position: a thread that writes columns of all rows leaves the last. One row can't.
    let by_rows = rows.shape.rows == 1;
    let unit = dtype.block_len().max(ROW_UNIT);
    let split = match unit {
        _ if by_rows => Split::Rows(rows),
        ROW_UNIT => Split::Cols(rows),
        // A thread's blocks aren't the columns that it has in other steps.
        _ => Split::Any,
    };
    let accesses = [
        Access::read(x_span, split),
        Access::read(positions_span, Split::Any),
        Access::write(state.span(), Split::Any),
    ];
    let key_blocks = p.key_blocks(state_id);
    p.push(rows, &accesses, WriteRows { x, positions, state, dtype, key_blocks, unit, by_rows });
    Ok(())
}

struct WriteRows {
    x: Floats,
    positions: *const i32,
    state: Place,
    dtype: DType,
    /// Blocks at the start in which rows are columns.
    key_blocks: usize,
    /// Threads split columns at multiples of this.
    unit: usize,
    by_rows: bool,
}

impl Work for WriteRows {
    unsafe fn run(&self, run: &Run<'_>) {
        let (rows, cols) = if self.by_rows {
            (run.rows(), 0..self.x.cols)
        } else {
            (0..run.live, run.team.share(self.x.cols, self.unit))
        };
        for row in rows {
            // SAFETY: the column has a position for each row.
            let Ok(position) = usize::try_from(unsafe { *self.positions.add(row) }) else { continue };
            // SAFETY: positions were checked against the state's rows before the run; threads write disjoint columns,
            // or there is one row.
            unsafe { self.write(run, row, position, cols.clone()) };
        }
    }
}

impl WriteRows {
    /// Some columns of a row, whole blocks of them.
    ///
    /// # Safety
    /// The row and the position must exist, and nobody else may use these columns of the position.
    unsafe fn write(&self, run: &Run<'_>, row: usize, position: usize, cols: Range<usize>) {
        let first = position * self.x.cols + cols.start;
        // SAFETY: the caller's promise; rows of a state are whole blocks.
        unsafe {
            let x = self.x.part(row, cols.clone());
            if position / KEY_BLOCK < self.key_blocks {
                return self.write_column(run, x, position, cols.start);
            }
            match self.dtype {
                DType::F16 => run.kernels.to_f16(self.elements(first, x.len()), x),
                DType::Q8_0 => run.kernels.to_q8_0(self.elements::<Q8_0>(first / QK, x.len() / QK), x),
                _ => self.elements::<f32>(first, x.len()).copy_from_slice(x),
            }
        }
    }

    /// A part of a row as a column of its block: `x` belongs at `position`, from column `first` on.
    ///
    /// # Safety
    /// As [`WriteRows::write`].
    unsafe fn write_column(&self, run: &Run<'_>, x: &[f32], position: usize, first: usize) {
        let block = position / KEY_BLOCK * KEY_BLOCK * self.x.cols + position % KEY_BLOCK;
        let at = |col: usize| block + (first + col) * KEY_BLOCK;
        // SAFETY: the caller's promise; the block is whole, so each of its columns has a place for the position.
        unsafe {
            if self.dtype == DType::F16 {
                let mut halves = [0; ROW_UNIT];
                for (nth, x) in x.chunks(ROW_UNIT).enumerate() {
                    run.kernels.to_f16(&mut halves[..x.len()], x);
                    for (i, &half) in halves[..x.len()].iter().enumerate() {
                        self.state.first.cast::<u16>().add(at(nth * ROW_UNIT + i)).write(half);
                    }
                }
            } else {
                for (i, &x) in x.iter().enumerate() {
                    self.state.first.cast::<f32>().add(at(i)).write(x);
                }
            }
        }
    }

    /// `len` of the state's elements or blocks.
    ///
    /// # Safety
    /// They must exist, and nobody else may use them during `'a`.
    unsafe fn elements<'a, T>(&self, first: usize, len: usize) -> &'a mut [T] {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.state.first.cast::<T>().add(first), len) }
    }
}
