//! Working memory: the tables of rope angles, which live for a whole run, and behind them the memory of one node.
//!
//! The sizes are what the planner is told and what [`prepare`](super::prepare) lays out; both call these functions.

use minfer_graph::{AttentionSpec, ComputeGraph, NodeId, Op, RopeSpec};
use minfer_tensor::{Bytes, DType};

use crate::kernels::{self, ALIGN, Attention, CHUNK};

/// Distance of the working memories of two threads: no two share a cache line or its neighbour.
const THREAD_ALIGN: usize = 2 * ALIGN;

/// Bytes of the working memory that a segment needs (rule B1's scratch): the graph's angle tables, and behind them the
/// largest part of one of its nodes. Walks the graph once. Saturates.
pub(crate) fn segment_bytes(graph: &ComputeGraph, nodes: &[NodeId], threads: usize) -> Bytes {
    let own = |&id: &NodeId| NodeScratch::of(graph, id, threads).bytes();
    let most = nodes.iter().map(own).max().unwrap_or_default();
    let rotates = nodes.iter().any(|&id| matches!(graph.node(id).op, Op::Rope(_)));
    // The tables come first, so whoever works behind them has them, of other segments too.
    if most == 0 && !rotates {
        Bytes::ZERO
    } else {
        Bytes::from(AngleTables::of(graph).bytes().saturating_add(most))
    }
}

/// The parts of a node's working memory, from its start; offsets and sizes in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NodeScratch {
    /// Size of what the threads share: quantized activations or partial results of attention.
    pub(crate) shared: usize,
    /// Of `shared`, the part of one thread if each has its own; else 0.
    pub(crate) shared_stride: usize,
    /// Size of one thread's own memory, behind the shared part.
    pub(crate) thread: usize,
    /// Threads.
    pub(crate) threads: usize,
}

impl NodeScratch {
    /// The memory that `node` needs at its full rung.
    pub(crate) fn of(graph: &ComputeGraph, node: NodeId, threads: usize) -> Self {
        let node = graph.node(node);
        match node.op {
            Op::MatMul => {
                let w = graph.node(node.inputs[0]);
                Self::mat_mul(w.dtype, node.shape.rows, w.shape.cols, threads)
            }
            Op::Attention(spec) => {
                let n_ctx = graph.node(node.inputs[1]).shape.rows;
                Self::attention(&spec, node.shape.rows, n_ctx, threads)
            }
            _ => Self::default(),
        }
    }

    /// One row is quantized by every thread for itself, perhaps with a sum and a norm before (a row each), which saves
    /// barriers; more are shared out.
    fn mat_mul(dtype: DType, rows: usize, k: usize, threads: usize) -> Self {
        if !dtype.is_quantized() {
            return Self::default();
        }
        let thread = round_up(kernels::matmul_scratch_bytes(dtype, rows, k));
        let activations = round_up(kernels::quantized_bytes(rows, k));
        if rows == 1 {
            let shared = activations.saturating_mul(threads);
            let thread = thread.max(round_up(k.saturating_mul(2 * size_of::<f32>())));
            Self { shared, shared_stride: activations, thread, threads }
        } else {
            Self { shared: activations, shared_stride: 0, thread, threads }
        }
    }

    /// Partial results are kept only where one token's keys are shared out. There, each thread has room for the heads that
    /// it makes: a row of queries, and one head of keys or values.
    fn attention(spec: &AttentionSpec, rows: usize, n_ctx: usize, threads: usize) -> Self {
        let kernel = attention_kernel(spec);
        let heads = if rows == 1 { (spec.n_heads + 1).saturating_mul(spec.head_dim) } else { 0 };
        let thread = kernels::attention_scratch_bytes(&kernel);
        let thread = round_up(thread.saturating_add(heads.saturating_mul(size_of::<f32>())));
        let partials =
            spec.n_heads.saturating_mul(n_ctx.div_ceil(CHUNK)).saturating_mul(kernel.partial_len());
        let shared = if rows == 1 { round_up(partials.saturating_mul(size_of::<f32>())) } else { 0 };
        Self { shared, shared_stride: 0, thread, threads }
    }

    /// All of it.
    pub(crate) fn bytes(&self) -> usize {
        self.shared.saturating_add(self.thread.saturating_mul(self.threads))
    }
}

/// The kernel's description of an attention, without pointers.
pub(crate) fn attention_kernel(spec: &AttentionSpec) -> Attention {
    Attention {
        q: std::ptr::null(),
        k: std::ptr::null(),
        key_blocks: 0,
        v: std::ptr::null(),
        out: std::ptr::null_mut(),
        positions: std::ptr::null(),
        heads: spec.n_heads,
        kv_heads: spec.n_kv_heads,
        head_dim: spec.head_dim,
        scale: spec.scale,
        window: spec.window.unwrap_or(usize::MAX),
        softcap: spec.softcap,
    }
}

/// Cosines and sines of all positions of a run, shared by the rope nodes that turn by the same angles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct AngleTable {
    /// Elements of a head that are rotated: the floats of a row.
    pub(crate) n_rot: usize,
    /// Frequency base.
    pub(crate) base: f32,
    /// Factor on the position.
    pub(crate) scale: f32,
    /// Positions.
    pub(crate) positions: NodeId,
    /// Divisors of the frequencies.
    pub(crate) factors: Option<NodeId>,
    /// Positions at the full rung.
    pub(crate) rows: usize,
}

impl AngleTable {
    /// The table that a node turns by, if it is a rope.
    pub(crate) fn of(graph: &ComputeGraph, node: NodeId) -> Option<Self> {
        let node = graph.node(node);
        let Op::Rope(RopeSpec { n_rot, base, scale, .. }) = node.op else { return None };
        let (positions, factors) = (node.inputs[1], node.inputs.get(2).copied());
        Some(Self { n_rot, base, scale, positions, factors, rows: node.shape.rows })
    }

    /// Its size.
    pub(crate) fn bytes(&self) -> usize {
        round_up(self.rows.saturating_mul(self.n_rot).saturating_mul(size_of::<f32>()))
    }
}

/// The distinct angle tables of a graph in order of their first use, one behind the other from the start of the scratch.
pub(crate) struct AngleTables {
    tables: Vec<(AngleTable, usize)>,
    bytes: usize,
}

impl AngleTables {
    /// Walks the graph once.
    pub(crate) fn of(graph: &ComputeGraph) -> Self {
        let mut all = Self { tables: Vec::new(), bytes: 0 };
        for table in graph.ids().filter_map(|id| AngleTable::of(graph, id)) {
            if all.offset(&table).is_none() {
                all.tables.push((table, all.bytes));
                all.bytes = all.bytes.saturating_add(table.bytes());
            }
        }
        all
    }

    /// Where a table begins, in bytes; `None` if the graph has no such table.
    pub(crate) fn offset(&self, table: &AngleTable) -> Option<usize> {
        self.tables.iter().find(|(known, _)| known == table).map(|(_, offset)| *offset)
    }

    /// Size of all of them: where the memory of a node begins.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

fn round_up(bytes: usize) -> usize {
    bytes.checked_next_multiple_of(THREAD_ALIGN).unwrap_or(usize::MAX)
}
