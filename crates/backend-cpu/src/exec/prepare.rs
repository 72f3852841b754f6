//! Turns a segment into a program: one pass over its nodes, in execution order.

use std::ops::Range;
use std::sync::atomic::AtomicUsize;

use minfer_graph::{BackendError, CNode, NodeId, Op, Segment};
use minfer_tensor::{Bytes, DType};

use super::columns::{ColumnWork, Group};
use super::heads::Folds;
use super::order::{Access, LiveRows, Order, Span, Split};
use super::places::{Place, Places, outside, refused, unsupported};
use super::scratch::{AngleTables, NodeScratch};
use super::{Floats, Indices, Program, Step, StepWork, Work};
use super::{attention, element, gather, matmul, norm, rope, write};
use crate::spec::{CpuSpec, key_block};

type Result<T> = std::result::Result<T, BackendError>;

/// Rows of products from which on a step is long beside the time that a thread may have to wait for a processor.
const ELASTIC_FROM: usize = 64;

/// Checks a segment and resolves it to a program.
pub(crate) fn prepare(spec: &CpuSpec, mut places: Places<'_>) -> Result<Program> {
    let mut preparer = Preparer {
        threads: spec.threads(),
        tables: AngleTables::of(places.segment.graph),
        folds: Folds::of(&mut places),
        places,
        order: Order::default(),
        steps: Vec::new(),
        indices: Vec::new(),
        counters: 0,
        filled_tables: Vec::new(),
        quantized: None,
        done: Vec::new(),
    };
    for &id in preparer.segment().nodes {
        preparer.node(id)?;
    }
    let elastic = preparer.segment().nodes.iter().any(|&id| {
        let node = preparer.get(id);
        node.op == Op::MatMul && node.shape.rows >= ELASTIC_FROM
    });
    let Preparer { places, steps, indices, counters, .. } = preparer;
    let counters = (0..counters).map(|_| AtomicUsize::new(0)).collect();
    let (mut buffers, weights) = (places.used_buffers, places.used_weights);
    buffers.sort_unstable();
    buffers.dedup();
    Ok(Program { steps, indices, counters, elastic, buffers, _weights: weights })
}

/// A program in the making.
pub(super) struct Preparer<'a> {
    pub(super) threads: usize,
    /// The angle tables at the start of the scratch.
    pub(super) tables: AngleTables,
    /// What attention makes itself.
    pub(super) folds: Folds,
    places: Places<'a>,
    order: Order,
    steps: Vec<Step>,
    indices: Vec<Indices>,
    counters: usize,
    /// Angle tables that an earlier step has filled, by their offset in the scratch.
    pub(super) filled_tables: Vec<usize>,
    /// Nodes that a step of an earlier node does.
    pub(super) done: Vec<NodeId>,
    /// The activations that the scratch holds as int8 now.
    pub(super) quantized: Option<matmul::Quantized>,
}

/// The working memory of one node: what its threads share, and what each has for itself.
#[derive(Clone, Copy)]
pub(super) struct Scratch {
    pub(super) shared: Place,
    pub(super) layout: NodeScratch,
    pub(super) threads: Place,
}

impl<'a> Preparer<'a> {
    fn node(&mut self, id: NodeId) -> Result<()> {
        if self.folds.covers(id) || self.done.contains(&id) {
            return Ok(());
        }
        match &self.get(id).op {
            Op::Weight(_) | Op::Input(_) | Op::State(_) | Op::Reshape | Op::SliceRows { .. } => Ok(()),
            Op::GetRows => gather::prepare(self, id),
            Op::MatMul => matmul::prepare(self, id),
            Op::RmsNorm { .. } => norm::prepare(self, id),
            Op::Add | Op::Glu(_) => element::prepare_zip(self, id),
            Op::Scale { .. } | Op::Softcap { .. } => element::prepare_map(self, id),
            Op::Rope(spec) => rope::prepare(self, id, spec),
            Op::WriteRows => write::prepare(self, id),
            Op::Attention(spec) => attention::prepare(self, id, spec),
        }
    }

    /// The segment.
    pub(super) fn segment(&self) -> Segment<'a> {
        self.places.segment
    }

    /// A node of the graph.
    pub(super) fn get(&self, id: NodeId) -> &'a CNode {
        self.places.segment.graph.node(id)
    }

    /// The nodes with work that come after one.
    pub(super) fn work_after(&self, id: NodeId) -> impl Iterator<Item = NodeId> + use<'a> {
        let Segment { graph, nodes, .. } = self.places.segment;
        let later = nodes.iter().copied().skip_while(move |&other| other != id).skip(1);
        later.filter(move |&other| graph.node(other).op.has_work())
    }

    /// The rows of a node that a run computes.
    pub(super) fn live_rows(&self, id: NodeId) -> LiveRows {
        let node = self.get(id);
        LiveRows { rows: node.rows, shape: node.shape }
    }

    /// An f32 operand.
    pub(super) fn floats(&mut self, id: NodeId) -> Result<(Floats, Span)> {
        let node = self.get(id);
        if node.dtype != DType::F32 {
            return Err(unsupported(&node.op, node.dtype));
        }
        let place = self.places.readable(id)?;
        Ok((Floats { first: place.first.cast(), cols: node.shape.cols }, place.span()))
    }

    /// An operand of any type.
    pub(super) fn operand(&mut self, id: NodeId) -> Result<Place> {
        self.places.readable(id)
    }

    /// Of a weight in panels: which row of its first panel is the first one.
    pub(super) fn row_in_panel(&self, id: NodeId) -> Option<usize> {
        self.places.row_in_panel(id)
    }

    /// How many blocks of keys lie transposed in a state.
    pub(super) fn key_blocks(&self, id: NodeId) -> usize {
        let (node, block) = (self.get(id), key_block(self.get(id).dtype));
        if block > 1 && self.segment().graph.holds_keys(id) { node.shape.rows / block } else { 0 }
    }

    /// A state that is written.
    pub(super) fn state(&mut self, id: NodeId) -> Result<Place> {
        self.places.writable(id)
    }

    /// The f32 result of a node. It overlaps no operand, except that it may be exactly one of `replaces`.
    pub(super) fn result(&mut self, id: NodeId, replaces: &[NodeId]) -> Result<(Floats, Span)> {
        let node = self.get(id);
        let place = self.places.writable(id)?;
        for &input in &node.inputs {
            let operand = self.places.readable(input)?.span();
            let replaced = replaces.contains(&input) && operand == place.span();
            if operand.overlaps(place.span()) && !replaced {
                return Err(refused(id, &format!("would overwrite its operand {input}")));
            }
        }
        Ok((Floats { first: place.first.cast(), cols: node.shape.cols }, place.span()))
    }

    /// A column of ids or positions, used by `user` as numbers of rows below `limit`, one for each of `rows`. It must
    /// still be what the host wrote, for it is checked before the run.
    pub(super) fn row_numbers(
        &mut self,
        column: NodeId,
        user: NodeId,
        rows: LiveRows,
        limit: usize,
    ) -> Result<(*const i32, Span)> {
        let (first, span) = self.integers(column)?;
        let graph = self.segment().graph;
        let is_input = matches!(graph.node(graph.storage_of(column)).op, Op::Input(_));
        if !is_input || self.order.was_written(span) {
            return Err(refused(user, &format!("needs row numbers {column} that the host filled")));
        }
        self.indices.push(Indices { node: user, first, rows, limit });
        Ok((first, span))
    }

    /// A column of i32, one for each row of its user.
    pub(super) fn integers(&mut self, column: NodeId) -> Result<(*const i32, Span)> {
        let node = self.get(column);
        if node.dtype != DType::I32 {
            return Err(unsupported(&node.op, node.dtype));
        }
        let place = self.places.readable(column)?;
        Ok((place.first.cast(), place.span()))
    }

    /// The working memory of a node, behind the angle tables.
    pub(super) fn scratch(&mut self, id: NodeId) -> Result<Scratch> {
        let layout = NodeScratch::of(self.segment().graph, id, self.threads);
        let rest = self.scratch_part(self.tables.bytes(), layout.bytes())?;
        let threads = rest.part(layout.shared, rest.len - layout.shared);
        Ok(Scratch { shared: rest.part(0, layout.shared), layout, threads })
    }

    /// A part of the segment's working memory.
    pub(super) fn scratch_part(&mut self, offset: usize, len: usize) -> Result<Place> {
        if len == 0 {
            return Ok(Place { first: std::ptr::dangling_mut::<u64>().cast(), len });
        }
        let needed = Bytes::from(offset.saturating_add(len));
        match (self.places.scratch()?, self.segment().scratch) {
            (Some(all), _) if needed <= Bytes::from(all.len) => Ok(all.part(offset, len)),
            (Some(all), Some(window)) => Err(outside(window.id, Bytes::from(all.len), needed)),
            _ => {
                let what = format!("the segment needs {needed} of working memory and has none");
                Err(BackendError::Device { backend: crate::spec::NAME.to_owned(), what })
            }
        }
    }

    /// The numbers of `count` new counters.
    pub(super) fn counters(&mut self, count: usize) -> Range<usize> {
        let first = self.counters;
        self.counters += count;
        first..self.counters
    }

    /// Whether `span` was just written with this split.
    pub(super) fn pending(&self, span: Span, split: Split) -> bool {
        self.order.pending(span, split)
    }

    /// Appends a step that touches what `accesses` say.
    pub(super) fn push(&mut self, rows: LiveRows, accesses: &[Access], work: impl Work + 'static) {
        let wait = self.order.add(accesses);
        self.steps.push(Step { wait, rows, work: StepWork::Whole(Box::new(work)) });
        self.forget_overwritten(accesses);
    }

    /// Appends work on `cols` columns of one row, to the last group if that has as many and needs no barrier before.
    /// `accesses` says what it touches with the split of its group; a column stands for `col_bytes` of weights.
    pub(super) fn push_columns(
        &mut self,
        rows: LiveRows,
        (cols, col_bytes): (usize, usize),
        accesses: impl Fn(Split) -> Vec<Access>,
        work: impl ColumnWork + 'static,
    ) {
        let last = self.steps.last_mut().filter(|step| step.rows == rows);
        if let Some(StepWork::Group(group)) = last.map(|step| &mut step.work) {
            let accesses = accesses(Split::Group(group.id));
            if group.cols == cols && !self.order.waits(&accesses) {
                group.col_bytes += col_bytes;
                group.works.push(Box::new(work));
                self.order.add(&accesses);
                return self.forget_overwritten(&accesses);
            }
        }
        let (id, taken) = (self.steps.len(), self.counters(1).start);
        let accesses = accesses(Split::Group(id));
        let group = Group { id, cols, taken, col_bytes, works: vec![Box::new(work)] };
        let wait = self.order.add(&accesses);
        self.steps.push(Step { wait, rows, work: StepWork::Group(group) });
        self.forget_overwritten(&accesses);
    }

    /// Int8 activations that a step with these accesses leaves no more.
    fn forget_overwritten(&mut self, accesses: &[Access]) {
        if self.quantized.is_some_and(|q| q.is_overwritten(accesses)) {
            self.quantized = None;
        }
    }
}

/// Whether a product with this type takes int8 activations; an error if it has no kernel.
pub(super) fn takes_int8(op: &Op, dtype: DType) -> Result<bool> {
    if dtype == DType::I32 { Err(unsupported(op, dtype)) } else { Ok(dtype.is_quantized()) }
}
