//! Working memory: the tables of rope angles, which live for a whole run, and behind them the memory of one node.
//!
//! The sizes are what the planner is told and what [`prepare`](super::prepare) lays out; both call these functions.

use minfer_graph::{AttentionSpec, ComputeGraph, NodeId, Op, RopeSpec};
use minfer_tensor::{Bytes, DType};

use crate::kernels::{self, ALIGN, Attention, CHUNK};

/// Distance of the working memories of two threads: no two share a cache line or its neighbour.
const THREAD_ALIGN: usize = 2 * ALIGN;

/// Bytes of the working memory that a segment needs for `node` (rule B1's scratch): the graph's angle tables and the
/// node's own part. Saturates.
pub(crate) fn node_bytes(graph: &ComputeGraph, node: NodeId, threads: usize) -> Bytes {
    let own = NodeScratch::of(graph, node, threads).bytes();
    match graph.node(node).op {
        Op::MatMul if own == 0 => Bytes::ZERO,
        Op::MatMul | Op::Rope(_) | Op::Attention(_) => Bytes::from(tables_bytes(graph).saturating_add(own)),
        _ => Bytes::ZERO,
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

    /// One row is quantized by every thread for itself, which saves a barrier; more are shared out.
    fn mat_mul(dtype: DType, rows: usize, k: usize, threads: usize) -> Self {
        if !dtype.is_quantized() {
            return Self::default();
        }
        let thread = round_up(kernels::matmul_scratch_bytes(dtype, rows, k));
        let activations = round_up(kernels::quantized_bytes(rows, k));
        if rows == 1 {
            let shared = activations.saturating_mul(threads);
            Self { shared, shared_stride: activations, thread, threads }
        } else {
            Self { shared: activations, shared_stride: 0, thread, threads }
        }
    }

    /// Partial results are kept only where one token's keys are shared out.
    fn attention(spec: &AttentionSpec, rows: usize, n_ctx: usize, threads: usize) -> Self {
        let kernel = attention_kernel(spec);
        let thread = round_up(kernels::attention_scratch_bytes(&kernel));
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

    /// The distinct tables of a graph in order of their first use, each with its byte offset in the scratch.
    pub(crate) fn all(graph: &ComputeGraph) -> Vec<(Self, usize)> {
        let mut tables: Vec<(Self, usize)> = Vec::new();
        for table in graph.ids().filter_map(|id| Self::of(graph, id)) {
            if !tables.iter().any(|(known, _)| *known == table) {
                tables.push((table, end_of(&tables)));
            }
        }
        tables
    }

    /// Its size.
    pub(crate) fn bytes(&self) -> usize {
        round_up(self.rows.saturating_mul(self.n_rot).saturating_mul(size_of::<f32>()))
    }
}

/// Bytes of all angle tables of a graph: where the memory of a node begins.
pub(crate) fn tables_bytes(graph: &ComputeGraph) -> usize {
    end_of(&AngleTable::all(graph))
}

fn end_of(tables: &[(AngleTable, usize)]) -> usize {
    tables.last().map_or(0, |(table, offset)| offset.saturating_add(table.bytes()))
}

fn round_up(bytes: usize) -> usize {
    bytes.checked_next_multiple_of(THREAD_ALIGN).unwrap_or(usize::MAX)
}
