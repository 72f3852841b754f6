//! Heads of one token that attention makes itself: norms, rotations and writes to the cache that come between the products
//! and attention are put off to there, where each thread does them for the heads that it works on, and nobody waits.

use minfer_graph::{AttentionSpec, BackendError, Heads, NodeId, Op};

use super::norm::{self, Norm};
use super::order::{Access, Split};
use super::places::{Place, Places};
use super::prepare::Preparer;
use super::rope::{self, Turn};
use super::write::{self, Cache};
use super::{Floats, Run};

/// What one attention makes itself.
pub(super) struct Fold {
    attention: NodeId,
    queries: Heads,
    /// The nodes that write keys and values, and the heads that they write.
    writes: [(NodeId, Heads); 2],
}

impl Fold {
    /// Whether a node is part of it.
    fn covers(&self, id: NodeId) -> bool {
        let own = |heads: &Heads| heads.norm == Some(id) || heads.rope == Some(id);
        own(&self.queries) || self.writes.iter().any(|(write, heads)| *write == id || own(heads))
    }

    fn sources(&self) -> [NodeId; 3] {
        let [(_, keys), (_, values)] = self.writes;
        [self.queries.source, keys.source, values.source]
    }
}

/// All that can be put off in a segment.
pub(super) struct Folds(Vec<Fold>);

impl Folds {
    /// Looks at each attention of one token.
    pub(super) fn of(places: &mut Places<'_>) -> Self {
        let nodes = places.segment.nodes;
        Self(nodes.iter().filter_map(|&id| fold(places, id)).collect())
    }

    /// Whether a node is done by an attention that comes later.
    pub(super) fn covers(&self, id: NodeId) -> bool {
        self.0.iter().any(|fold| fold.covers(id))
    }

    fn at(&self, attention: NodeId) -> Option<&Fold> {
        self.0.iter().find(|fold| fold.attention == attention)
    }
}

/// What the attention `id` may do itself: nobody else wants a value on the way, and the rows that it then reads later than
/// their readers would have are still there.
fn fold(places: &mut Places<'_>, id: NodeId) -> Option<Fold> {
    let (graph, nodes) = (places.segment.graph, places.segment.nodes);
    let node = graph.node(id);
    let Op::Attention(AttentionSpec { head_dim, .. }) = node.op else { return None };
    let [q, k, v, positions] = node.inputs[..] else { return None };
    if node.shape.rows != 1 || [k, v].iter().any(|&write| graph.node(write).op != Op::WriteRows) {
        return None;
    }
    let writes = [k, v].map(|write| (write, graph.heads(graph.node(write).inputs[1], head_dim)));
    let fold = Fold { attention: id, queries: graph.heads(q, head_dim), writes };
    let used_otherwise = |&(write, _): &(NodeId, Heads)| {
        let state = graph.storage_of(write);
        let shows = |&other: &NodeId| graph.storage_of(other) == state;
        let others = graph.ids().filter(|&other| other != write && other != id);
        graph.node(write).inputs[2] != positions
            || graph.outputs().iter().any(shows)
            || others.into_iter().any(|other| graph.node(other).inputs.iter().any(shows))
    };
    let covered = graph.ids().filter(|&other| fold.covers(other));
    if writes.iter().any(used_otherwise) || !covered.into_iter().all(|other| nodes.contains(&other)) {
        return None;
    }
    fold.sources().into_iter().all(|source| stays(places, &fold, source)).then_some(fold)
}

/// Whether nothing overwrites the row of `source` before the attention, or as its result.
fn stays(places: &mut Places<'_>, fold: &Fold, source: NodeId) -> bool {
    let (graph, nodes) = (places.segment.graph, places.segment.nodes);
    let made_by = graph.storage_of(source);
    let from = nodes.iter().position(|&id| id == made_by).map_or(0, |at| at + 1);
    let until = nodes.iter().position(|&id| id == fold.attention).unwrap_or(0);
    let Ok(row) = places.readable(source).map(Place::span) else { return false };
    nodes.get(from..=until).unwrap_or_default().iter().all(|&id| {
        let idle = !graph.node(id).op.has_work() || fold.covers(id);
        idle || places.readable(id).is_ok_and(|place| !place.span().overlaps(row))
    })
}

/// A row whose heads are made when they are needed.
#[derive(Clone)]
pub(super) struct Row {
    x: Floats,
    head_dim: usize,
    norm: Option<Norm>,
    turn: Option<Turn>,
}

impl Row {
    /// The row itself, if its heads are what it holds.
    pub(super) fn as_it_is(&self) -> Option<*const f32> {
        (self.norm.is_none() && self.turn.is_none()).then_some(self.x.first.cast_const())
    }

    /// Makes a head.
    ///
    /// # Safety
    /// The row must exist and nobody may write it, nor what its norm and rotation read.
    pub(super) unsafe fn head(&self, run: &Run<'_>, head: usize, out: &mut [f32]) {
        // SAFETY: the caller's promise.
        unsafe {
            let x = self.x.part(0, head * self.head_dim..(head + 1) * self.head_dim);
            match self.norm {
                Some(norm) => norm.apply(run, x, out),
                None => out.copy_from_slice(x),
            }
            if let Some(turn) = &self.turn {
                turn.apply(run, 0, out, self.head_dim);
            }
        }
    }
}

/// A row of keys or values on its way to the cache.
#[derive(Clone)]
pub(super) struct Write {
    row: Row,
    cache: Cache,
}

impl Write {
    /// Makes a head and writes it.
    ///
    /// # Safety
    /// As [`Row::head`] and [`Cache::put`].
    pub(super) unsafe fn head(&self, run: &Run<'_>, head: usize, position: usize, aside: &mut [f32]) {
        // SAFETY: the caller's promise.
        unsafe {
            self.row.head(run, head, aside);
            self.cache.put(run.kernels, aside, position, head * self.row.head_dim);
        }
    }
}

/// The rows of an attention.
#[derive(Clone)]
pub(super) struct Rows {
    pub(super) queries: Row,
    /// Keys and values, if it writes them.
    pub(super) writes: Vec<Write>,
}

/// Resolves the rows of an attention, and adds what they read and write to `accesses`.
pub(super) fn prepare(
    p: &mut Preparer<'_>,
    id: NodeId,
    head_dim: usize,
    accesses: &mut Vec<Access>,
) -> Result<Rows, BackendError> {
    let Some((queries, writes)) = p.folds.at(id).map(|fold| (fold.queries, fold.writes)) else {
        let queries = Heads { source: p.get(id).inputs[0], norm: None, rope: None };
        return Ok(Rows { queries: row(p, queries, head_dim, accesses)?, writes: Vec::new() });
    };
    let queries = row(p, queries, head_dim, accesses)?;
    let mut rows = Rows { queries, writes: Vec::with_capacity(writes.len()) };
    for (write, heads) in writes {
        let row = row(p, heads, head_dim, accesses)?;
        let target = write::target(p, write)?;
        accesses.push(Access::read(target.positions_span, Split::Any));
        accesses.push(Access::write(target.cache.span(), Split::Any));
        rows.writes.push(Write { row, cache: target.cache });
    }
    Ok(rows)
}

fn row(
    p: &mut Preparer<'_>,
    heads: Heads,
    head_dim: usize,
    accesses: &mut Vec<Access>,
) -> Result<Row, BackendError> {
    let (x, span) = p.floats(heads.source)?;
    accesses.push(Access::read(span, Split::Any));
    let norm = heads.norm.map(|id| norm::norm(p, id, accesses)).transpose()?;
    let turn = match heads.rope.map(|id| (id, &p.get(id).op)) {
        Some((id, Op::Rope(spec))) => {
            let (turn, span) = rope::turn(p, id, spec)?;
            accesses.push(Access::read(span, Split::Any));
            Some(turn)
        }
        _ => None,
    };
    // A view may show the one row as a row a head.
    let x = Floats { first: x.first, cols: span.len / size_of::<f32>() };
    Ok(Row { x, head_dim, norm, turn })
}
