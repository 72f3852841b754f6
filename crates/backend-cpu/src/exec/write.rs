//! Rows into a state, rounded to its type.

use minfer_graph::{BackendError, NodeId};
use minfer_tensor::DType;
use minfer_tensor::quant::{Q8_0, QK};

use super::order::{Access, Span, Split};
use super::places::{Place, refused, unsupported};
use super::prepare::Preparer;
use super::{Floats, Run, Work};
use crate::kernels::{KEY_BLOCK, Kernels, ROW_UNIT};
use crate::spec::head_unit;

/// Where a node writes.
pub(super) struct Target {
    pub(super) cache: Cache,
    positions: *const i32,
    pub(super) positions_span: Span,
}

/// Resolves and checks where a node writes.
pub(super) fn target(p: &mut Preparer<'_>, id: NodeId) -> Result<Target, BackendError> {
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
    let cache = Cache { state, dtype, cols: x.cols, key_blocks: p.key_blocks(state_id) };
    Ok(Target { cache, positions, positions_span })
}

pub(super) fn prepare(p: &mut Preparer<'_>, id: NodeId) -> Result<(), BackendError> {
    let x_id = p.get(id).inputs[1];
    let Target { cache, positions, positions_span } = target(p, id)?;
    let ((x, x_span), rows) = (p.floats(x_id)?, p.live_rows(x_id));
    // Two rows may name one position: a thread that writes columns of all rows leaves the last. One row can't.
    let by_rows = rows.shape.rows == 1;
    let unit = cache.dtype.block_len().max(ROW_UNIT);
    let split = match unit {
        _ if by_rows => Split::Rows(rows),
        ROW_UNIT => Split::Cols(rows),
        // A thread's blocks aren't the columns that it has in other steps.
        _ => Split::Any,
    };
    let accesses = [
        Access::read(x_span, split),
        Access::read(positions_span, Split::Any),
        Access::write(cache.span(), Split::Any),
    ];
    p.push(rows, &accesses, WriteRows { x, positions, cache, unit, by_rows });
    Ok(())
}

struct WriteRows {
    x: Floats,
    positions: *const i32,
    cache: Cache,
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
            unsafe { self.cache.put(run.kernels, self.x.part(row, cols.clone()), position, cols.start) };
        }
    }
}

/// Keys or values of positions.
#[derive(Clone)]
pub(super) struct Cache {
    state: Place,
    dtype: DType,
    /// Elements of a position.
    cols: usize,
    /// Blocks at the start in which rows are columns.
    key_blocks: usize,
}

impl Cache {
    /// Its memory.
    pub(super) fn span(&self) -> Span {
        self.state.span()
    }

    /// Writes the columns of a position from `first` on, whole blocks of them.
    ///
    /// # Safety
    /// The position must exist and have these columns, and nobody else may use them.
    pub(super) unsafe fn put(&self, kernels: &Kernels, x: &[f32], position: usize, first: usize) {
        // SAFETY: the caller's promise; rows of a state are whole blocks.
        unsafe {
            if position / KEY_BLOCK < self.key_blocks {
                return self.put_column(kernels, x, position, first);
            }
            let at = position * self.cols + first;
            match self.dtype {
                DType::F16 => kernels.to_f16(self.elements(at, x.len()), x),
                DType::Q8_0 => kernels.to_q8_0(self.elements::<Q8_0>(at / QK, x.len() / QK), x),
                _ => self.elements::<f32>(at, x.len()).copy_from_slice(x),
            }
        }
    }

    /// The same where a position is a column of its block.
    ///
    /// # Safety
    /// As [`Cache::put`].
    unsafe fn put_column(&self, kernels: &Kernels, x: &[f32], position: usize, first: usize) {
        let block = position / KEY_BLOCK * KEY_BLOCK * self.cols + position % KEY_BLOCK;
        let at = |col: usize| block + (first + col) * KEY_BLOCK;
        // SAFETY: the caller's promise; the block is whole, so each of its columns has a place for the position.
        unsafe {
            if self.dtype == DType::F16 {
                let mut halves = [0; ROW_UNIT];
                for (nth, x) in x.chunks(ROW_UNIT).enumerate() {
                    kernels.to_f16(&mut halves[..x.len()], x);
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
