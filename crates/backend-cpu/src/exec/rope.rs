//! Rotary position embedding. The angles of a run's positions are computed once, into a table in the scratch, for all
//! blocks that turn by them.

use minfer_graph::{BackendError, NodeId, RopeSpec, RopeStyle};

use super::element::copy_unless_same;
use super::order::{Access, Span, Split};
use super::places::{Place, refused};
use super::prepare::Preparer;
use super::scratch::AngleTable;
use super::{Floats, Run, Work};
use crate::kernels::{RopeAngles, rope_frequencies};

pub(super) fn prepare(p: &mut Preparer<'_>, id: NodeId, spec: &RopeSpec) -> Result<(), BackendError> {
    let node = p.get(id);
    let (x, x_span) = p.floats(node.inputs[0])?;
    let (out, out_span) = p.result(id, &[node.inputs[0]])?;
    let rows = p.live_rows(id);
    let (turn, table) = turn(p, id, spec)?;
    let accesses = [
        Access::read(x_span, Split::Rows(rows)),
        Access::read(table, Split::Rows(rows)),
        Access::write(out_span, Split::Rows(rows)),
    ];
    p.push(rows, &accesses, Rope { x, out, turn, head_dim: spec.head_dim });
    Ok(())
}

/// How heads are turned.
#[derive(Clone, Copy)]
pub(super) struct Turn {
    angles: Floats,
    halves: bool,
}

impl Turn {
    /// Turns heads of row `row`.
    ///
    /// # Safety
    /// The row of the angle table must exist, and nobody may write it.
    pub(super) unsafe fn apply(&self, run: &Run<'_>, row: usize, heads: &mut [f32], head_dim: usize) {
        // SAFETY: the caller's promise.
        let (cos, sin) = unsafe { self.angles.row(row) }.split_at(self.angles.cols / 2);
        run.kernels.rope(heads, head_dim, &RopeAngles { cos, sin }, self.halves);
    }
}

/// The rotation of a node, and the memory of its angles.
pub(super) fn turn(p: &mut Preparer<'_>, id: NodeId, spec: &RopeSpec) -> Result<(Turn, Span), BackendError> {
    let table = angles(p, id)?;
    let angles = Floats { first: table.first.cast(), cols: spec.n_rot };
    Ok((Turn { angles, halves: spec.style == RopeStyle::Halves }, table.span()))
}

/// The angle table of a node, filled by an earlier step.
fn angles(p: &mut Preparer<'_>, id: NodeId) -> Result<Place, BackendError> {
    let table = AngleTable::of(p.segment().graph, id);
    let known = table.and_then(|table| Some((table, p.tables.offset(&table)?)));
    let Some((table, offset)) = known else { return Err(refused(id, "turns by no angles")) };
    let place = p.scratch_part(offset, table.bytes())?;
    if p.filled_tables.contains(&offset) {
        return Ok(place);
    }
    let factors = match table.factors {
        Some(factors) => Some(constant(p, factors, id)?),
        None => None,
    };
    let mut frequencies = vec![0.0; table.n_rot / 2];
    rope_frequencies(&mut frequencies, table.base, table.scale, factors.as_deref());
    let (positions, positions_span) = p.integers(table.positions)?;
    let rows = p.live_rows(id);
    let accesses = [Access::read(positions_span, Split::Any), Access::write(place.span(), Split::Rows(rows))];
    let out = Floats { first: place.first.cast(), cols: table.n_rot };
    p.push(rows, &accesses, Angles { positions, frequencies, out });
    p.filled_tables.push(offset);
    Ok(place)
}

/// The values of a weight.
fn constant(p: &mut Preparer<'_>, id: NodeId, user: NodeId) -> Result<Vec<f32>, BackendError> {
    let graph = p.segment().graph;
    if !matches!(graph.node(graph.storage_of(id)).op, minfer_graph::Op::Weight(_)) {
        return Err(refused(user, &format!("needs factors {id} that are a weight")));
    }
    let (values, _) = p.floats(id)?;
    // SAFETY: a weight's bytes are never written and have been checked to be `cols` aligned f32.
    Ok(unsafe { values.row(0) }.to_vec())
}

/// Fills a table: `[cosines, sines]` a row.
struct Angles {
    positions: *const i32,
    frequencies: Vec<f64>,
    out: Floats,
}

impl Work for Angles {
    unsafe fn run(&self, run: &Run<'_>) {
        for row in run.rows() {
            // SAFETY: threads take disjoint rows; the column has a position for each.
            let (out, position) = unsafe { (self.out.row_mut(row), *self.positions.add(row)) };
            RopeAngles::fill(out, position, &self.frequencies);
        }
    }
}

struct Rope {
    x: Floats,
    out: Floats,
    turn: Turn,
    head_dim: usize,
}

impl Work for Rope {
    unsafe fn run(&self, run: &Run<'_>) {
        for row in run.rows() {
            // SAFETY: threads take disjoint rows; the operand is the result itself or does not overlap it.
            unsafe {
                copy_unless_same(self.x, self.out, row, 0..self.out.cols);
                self.turn.apply(run, row, self.out.row_mut(row), self.head_dim);
            }
        }
    }
}
