//! Which backend runs which node (rule O5), and where a graph is cut.

use minfer_tensor::{Bytes, DType};

use crate::alloc::GraphAllocator;
use crate::backend::{BackendId, BatchCounts, BufRef, DeviceSpec};
use crate::error::{Error, Result};
use crate::ir::{CNode, ComputeGraph, NodeId, Op, StateDecl, StateId, WeightDecl, WeightId};
use crate::offload::OffloadPlan;

/// Nodes that one backend runs in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Who runs them.
    pub backend: BackendId,
    /// The nodes, in execution order: no leaves and no views but [`Op::WriteRows`].
    pub nodes: Vec<NodeId>,
}

/// Who runs each node of a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    backend_of: Vec<BackendId>,
    spans: Vec<Span>,
}

impl Assignment {
    /// Where a value is computed; for a view, where what it shows is. The CPU for weights and inputs, which are wherever
    /// they are read.
    pub fn backend_of(&self, id: NodeId) -> BackendId {
        self.backend_of[id.index()]
    }

    /// The pieces of the graph, in execution order.
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// The span that computes a node. Panics on a leaf or a view.
    pub(crate) fn span_of(&self, id: NodeId) -> usize {
        let at = self.spans.partition_point(|span| span.nodes.last().is_some_and(|&last| last < id));
        debug_assert!(self.spans[at].nodes.contains(&id));
        at
    }

    /// Index of the last node of the span that computes `id`.
    pub(crate) fn span_end(&self, id: NodeId) -> usize {
        self.spans[self.span_of(id)].nodes.last().map_or(id.index(), |last| last.index())
    }
}

/// Assigns nodes to backends: the device first for what it supports in the blocks that the plan gives it, else the CPU.
///
/// A node goes where its states are, and a state is on one backend for all graphs. A node whose weight the plan keeps off
/// the device stays on the CPU with it.
#[derive(Clone, Debug, PartialEq)]
pub struct BackendScheduler {
    offload: OffloadPlan,
    weights: Vec<WeightDecl>,
    states: Vec<StateDecl>,
    state_homes: Vec<BackendId>,
}

impl BackendScheduler {
    /// Decides where the states live, from all graphs that will touch them.
    pub fn new(
        alloc: &GraphAllocator,
        offload: OffloadPlan,
        weights: &[WeightDecl],
        states: &[StateDecl],
        graphs: &[ComputeGraph],
    ) -> Self {
        let home = |state: &StateDecl| alloc.device_for(&offload, Some(state.layer)).unwrap_or(alloc.cpu());
        let state_homes = states.iter().map(home).collect();
        let mut this = Self { offload, weights: weights.to_vec(), states: states.to_vec(), state_homes };
        // A node that pulls one of its states to the CPU pulls the others along.
        while graphs.iter().any(|graph| this.lower_states(alloc, graph)) {}
        this
    }

    /// The plan.
    pub fn offload(&self) -> OffloadPlan {
        self.offload
    }

    /// The weights of the model, by [`WeightId`].
    pub fn weights(&self) -> &[WeightDecl] {
        &self.weights
    }

    /// The states of the session, by [`StateId`].
    pub fn states(&self) -> &[StateDecl] {
        &self.states
    }

    /// Where a state lives.
    pub fn state_home(&self, id: StateId) -> BackendId {
        self.state_homes[id.index()]
    }

    /// Assigns every node. Fails on an operation that even the CPU has no kernel for.
    pub fn assign_backends(&self, alloc: &GraphAllocator, graph: &ComputeGraph) -> Result<Assignment> {
        let mut backend_of: Vec<BackendId> = Vec::with_capacity(graph.nodes().len());
        let mut spans: Vec<Span> = Vec::new();
        for id in graph.ids() {
            let node = graph.node(id);
            let backend = match node.op {
                Op::Weight(_) | Op::Input(_) => alloc.cpu(),
                Op::State(state) => self.state_home(state),
                Op::Reshape | Op::SliceRows { .. } => backend_of[node.inputs[0].index()],
                _ => self.backend_for(alloc, graph, node)?,
            };
            backend_of.push(backend);
            if !node.op.has_work() {
                continue;
            }
            match spans.last_mut().filter(|span| span.backend == backend) {
                Some(span) => span.nodes.push(id),
                None => spans.push(Span { backend, nodes: vec![id] }),
            }
        }
        Ok(Assignment { backend_of, spans })
    }

    /// The weights that the nodes of `backend` read.
    pub(crate) fn weights_read(
        graph: &ComputeGraph,
        assignment: &Assignment,
    ) -> impl Iterator<Item = (WeightId, BackendId)> {
        let operands = assignment
            .spans()
            .iter()
            .flat_map(|span| span.nodes.iter().map(|&id| (id, span.backend)))
            .flat_map(|(id, backend)| graph.node(id).inputs.iter().map(move |&operand| (operand, backend)));
        operands.filter_map(|(operand, backend)| match graph.node(graph.storage_of(operand)).op {
            Op::Weight(id) => Some((id, backend)),
            _ => None,
        })
    }

    fn backend_for(&self, alloc: &GraphAllocator, graph: &ComputeGraph, node: &CNode) -> Result<BackendId> {
        let operands = operand_dtypes(graph, node);
        let cpu = alloc.cpu();
        let device = self.device_for(alloc, graph, node, &operands);
        let on_device = device.filter(|&d| states_of(graph, node).all(|s| self.state_home(s) == d));
        if on_device.is_some() || alloc.supports_for(cpu, node, &operands, &self.offload) {
            return Ok(on_device.unwrap_or(cpu));
        }
        Err(Error::Unsupported {
            backend: alloc.spec(cpu).name().to_owned(),
            op: node.op.name(),
            dtype: operands.first().copied().unwrap_or(node.dtype),
        })
    }

    /// The device, if the plan and its kernels allow a node there, states apart.
    fn device_for(
        &self,
        alloc: &GraphAllocator,
        graph: &ComputeGraph,
        node: &CNode,
        operands: &[DType],
    ) -> Option<BackendId> {
        let device = alloc.device_for(&self.offload, node.layer)?;
        let weights_there = node.inputs.iter().all(|&x| match graph.node(graph.storage_of(x)).op {
            Op::Weight(id) => {
                self.weights.get(id.index()).is_some_and(|decl| self.offload.allows_weight(&decl.name))
            }
            _ => true,
        });
        (weights_there && alloc.supports_for(device, node, operands, &self.offload)).then_some(device)
    }

    /// Moves the states to the CPU that a node of `graph` needs there. Whether any moved.
    fn lower_states(&mut self, alloc: &GraphAllocator, graph: &ComputeGraph) -> bool {
        let cpu = alloc.cpu();
        let mut moved = false;
        for node in graph.nodes().iter().filter(|node| node.op.has_work()) {
            let on_cpu = states_of(graph, node).any(|s| self.state_home(s) == cpu)
                || self.device_for(alloc, graph, node, &operand_dtypes(graph, node)).is_none();
            for state in states_of(graph, node).filter(|_| on_cpu) {
                moved |= std::mem::replace(&mut self.state_homes[state.index()], cpu) != cpu;
            }
        }
        moved
    }
}

/// Blocks from the first on whose nodes all have kernels on a device.
pub fn supported_blocks(device: &dyn DeviceSpec, graph: &ComputeGraph, n_layers: u32) -> u32 {
    let lacking = graph.nodes().iter().filter(|node| node.op.has_work());
    let lacking = lacking.filter(|node| !device.supports_op(node, &operand_dtypes(graph, node)));
    lacking.filter_map(|node| node.layer).min().map_or(n_layers, |first| first.min(n_layers))
}

fn operand_dtypes(graph: &ComputeGraph, node: &CNode) -> Vec<DType> {
    node.inputs.iter().map(|&x| graph.node(x).dtype).collect()
}

fn states_of<'a>(graph: &'a ComputeGraph, node: &'a CNode) -> impl Iterator<Item = StateId> + 'a {
    node.inputs.iter().filter_map(|&x| match graph.node(graph.storage_of(x)).op {
        Op::State(id) => Some(id),
        _ => None,
    })
}

/// The part of a value's place that holds data in a run (rule A7): rows beyond `counts` are nobody's.
pub fn window_of(node: &CNode, place: BufRef, counts: BatchCounts) -> BufRef {
    let live = node.rows.live(node.shape, counts) as u64;
    let row = node.dtype.row_bytes(node.shape.cols).unwrap_or(Bytes::ZERO);
    // The whole value has a size, so a part of it has one.
    let len = row.checked_mul(live).unwrap_or(place.len).min(place.len);
    BufRef { len, ..place }
}
