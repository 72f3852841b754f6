//! A graph on a backend, placed as a real run would be: values whose lives don't overlap share buffers, and an operation
//! that may run in place does. What a value's buffer held before is poison (NaN), never a lucky zero.

use std::ops::Range;
use std::sync::Arc;

use minfer_graph::{
    Backend, BackendError, BackendId, BatchCounts, Binding, BufId, BufKind, BufRef, CancelFlag, ComputeGraph,
    DeviceSpec, InputId, NodeId, Op, Segment, SegmentId, StateDecl, StateId, WeightBytes, WeightDecl,
    WeightId, WeightSource,
};
use minfer_tensor::Bytes;

type Result<T> = std::result::Result<T, BackendError>;

/// A backend with registered weights and states, which outlive graphs.
pub struct Session<'a> {
    /// The backend.
    pub backend: &'a mut dyn Backend,
    states: Vec<BufRef>,
}

impl<'a> Session<'a> {
    /// A session without weights and states.
    pub fn new(backend: &'a mut dyn Backend) -> Self {
        Self { backend, states: Vec::new() }
    }

    /// Registers a weight that is owned by the session.
    pub fn register_weight(&mut self, id: WeightId, decl: &WeightDecl, data: Vec<u8>) -> Result<()> {
        let len = data.len();
        self.backend.register_weight(id, decl, WeightBytes::new(Arc::new(Owned(data)), 0..len))
    }

    /// Creates the next state with its content. Panics unless states come in the order of their ids.
    pub fn add_state(&mut self, id: StateId, decl: &StateDecl, data: &[u8]) -> Result<()> {
        assert_eq!(id.index(), self.states.len(), "states in order");
        let len = Bytes::from(data.len());
        assert_eq!(decl.nbytes(), Some(len), "{}", decl.name);
        let buffer = self.backend.alloc_buffer(BufKind::Kv, len)?;
        self.states.push(window(buffer, len));
        self.backend.write_host(buffer, data)
    }

    /// The bytes of a state, laid out as the backend likes.
    pub fn state_bytes(&self, id: StateId) -> Result<Vec<u8>> {
        self.read(self.states[id.index()])
    }

    /// Frees the states.
    pub fn close(self) {
        for state in self.states {
            self.backend.free_buffer(state.id);
        }
    }

    fn read(&self, from: BufRef) -> Result<Vec<u8>> {
        let mut data = vec![0; from.len.to_usize().expect("a buffer of this process")];
        self.backend.read_host_window(from, &mut data)?;
        Ok(data)
    }
}

/// A placed and prepared graph.
#[derive(Debug)]
pub struct Runner {
    graph: ComputeGraph,
    bindings: Vec<Option<Binding>>,
    buffers: Vec<BufId>,
    segment: SegmentId,
    /// Never set; made once, so that a run allocates nothing.
    cancel: CancelFlag,
}

impl Runner {
    /// Places and prepares `graph`, whose weights and states `session` has.
    pub fn new(session: &mut Session<'_>, graph: &ComputeGraph) -> Result<Self> {
        let mut buffers = Vec::new();
        let bindings = bind(session, graph, &mut buffers)?;
        let nodes: Vec<NodeId> = graph.ids().filter(|&id| is_computed(&graph.node(id).op)).collect();
        let scratch = session.backend.spec().scratch_bytes(graph, &nodes);
        let scratch = if scratch == Bytes::ZERO {
            None
        } else {
            Some(poisoned(session.backend, BufKind::Scratch, scratch, &mut buffers)?)
        };
        let segment = Segment { graph, nodes: &nodes, bindings: &bindings, scratch };
        let segment = session.backend.prepare(segment)?;
        Ok(Self { graph: graph.clone(), bindings, buffers, segment, cancel: CancelFlag::new() })
    }

    /// Fills an input.
    pub fn write_input(&mut self, session: &mut Session<'_>, id: InputId, data: &[u8]) -> Result<()> {
        let node = self.graph.inputs()[id.index()].1;
        session.backend.write_host_window(self.window_of(node), data)
    }

    /// Runs the graph.
    pub fn run(&mut self, session: &mut Session<'_>, counts: BatchCounts) -> Result<()> {
        session.backend.execute(self.segment, counts, &self.cancel)
    }

    /// The live rows of output `index`.
    pub fn output(&self, session: &Session<'_>, index: usize, counts: BatchCounts) -> Result<Vec<f32>> {
        let id = self.graph.outputs()[index];
        let node = self.graph.node(id);
        let live = node.rows.live(node.shape, counts) * node.shape.cols;
        let data = session.read(self.window_of(id))?;
        Ok(data.as_chunks().0[..live].iter().map(|&b| f32::from_le_bytes(b)).collect())
    }

    /// The rows of a state, however the backend lays them out.
    pub fn state_rows(&self, session: &Session<'_>, id: StateId) -> Result<Vec<u8>> {
        let bytes = session.state_bytes(id)?;
        Ok(laid_out(&self.graph, id, &**session.backend.spec(), &bytes, Layout::Rows))
    }

    /// Forgets the prepared graph and frees its buffers.
    pub fn release(self, session: &mut Session<'_>) {
        session.backend.release(self.segment);
        for id in self.buffers {
            session.backend.free_buffer(id);
        }
    }

    fn window_of(&self, id: NodeId) -> BufRef {
        match self.bindings[id.index()] {
            Some(Binding::Buffer(window)) => window,
            other => panic!("{id} is bound to {other:?}, not to a buffer"),
        }
    }
}

/// How the bytes of a state lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Row after row.
    Rows,
    /// Keys perhaps transposed, in blocks of as many rows as the backend says.
    OfBackend,
}

/// The bytes of a state of `graph` brought from the other layout to `to`.
pub(crate) fn laid_out(
    graph: &ComputeGraph,
    state: StateId,
    spec: &dyn DeviceSpec,
    data: &[u8],
    to: Layout,
) -> Vec<u8> {
    let mut out = data.to_vec();
    let keys = graph.ids().find(|&id| graph.node(id).op == Op::State(state) && graph.holds_keys(id));
    let Some(node) = keys.map(|id| graph.node(id)) else { return out };
    let (block, cols) = (spec.key_block(node.dtype), node.shape.cols);
    if block == 1 {
        return out;
    }
    let size = data.len() / (node.shape.rows * cols);
    for first in (0..node.shape.rows / block * block).step_by(block) {
        for (row, col) in (0..block).flat_map(|row| (0..cols).map(move |col| (row, col))) {
            let in_rows = ((first + row) * cols + col) * size;
            let in_block = (first * cols + col * block + row) * size;
            let (from, to) = if to == Layout::Rows { (in_block, in_rows) } else { (in_rows, in_block) };
            out[to..to + size].copy_from_slice(&data[from..from + size]);
        }
    }
    out
}

/// Whether a backend has work with a node.
fn is_computed(op: &Op) -> bool {
    !op.is_leaf() && (!op.is_view() || *op == Op::WriteRows)
}

struct Owned(Vec<u8>);

impl WeightSource for Owned {
    fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.0[range]
    }
    fn is_mapped(&self) -> bool {
        false
    }
}

fn window(id: BufId, len: Bytes) -> BufRef {
    BufRef { backend: BackendId::new(0), id, offset: Bytes::ZERO, len }
}

/// A new buffer of NaNs.
fn poisoned(backend: &mut dyn Backend, kind: BufKind, len: Bytes, all: &mut Vec<BufId>) -> Result<BufRef> {
    let id = backend.alloc_buffer(kind, len)?;
    all.push(id);
    backend.write_host(id, &vec![0xff; len.to_usize().expect("a buffer of this process")])?;
    Ok(window(id, len))
}

/// Creates the buffers of a graph and says where each node lies.
fn bind(
    session: &mut Session<'_>,
    graph: &ComputeGraph,
    buffers: &mut Vec<BufId>,
) -> Result<Vec<Option<Binding>>> {
    let (slot_of, sizes) = place(graph);
    let mut create = |len| poisoned(session.backend, BufKind::Pool, len, buffers);
    let slots = sizes.into_iter().map(&mut create).collect::<Result<Vec<_>>>()?;
    let mut bindings: Vec<Option<Binding>> = Vec::new();
    for id in graph.ids() {
        let node = graph.node(id);
        let storage = graph.storage_of(id);
        let binding = match (&node.op, slot_of[id.index()]) {
            (Op::Weight(weight), _) => Binding::Weight(*weight),
            (Op::Input(_), _) => Binding::Buffer(create(node.nbytes())?),
            (Op::State(state), _) => Binding::Buffer(session.states[state.index()]),
            (_, Some(slot)) => Binding::Buffer(BufRef { len: node.nbytes(), ..slots[slot] }),
            (_, None) => view(bindings[storage.index()], graph, id),
        };
        bindings.push(Some(binding));
    }
    Ok(bindings)
}

/// A view shows a window of its storage; a view of a weight is the weight.
fn view(storage: Option<Binding>, graph: &ComputeGraph, id: NodeId) -> Binding {
    match storage.expect("storage comes before its views") {
        Binding::Buffer(whole) => Binding::Buffer(BufRef {
            offset: graph.offset_in_storage(id),
            len: graph.node(id).nbytes(),
            ..whole
        }),
        weight => weight,
    }
}

/// The slot of each node that owns memory, and the size of each slot: first fit among the free ones of the same size.
fn place(graph: &ComputeGraph) -> (Vec<Option<usize>>, Vec<Bytes>) {
    let last_use = last_uses(graph);
    let mut slot_of: Vec<Option<usize>> = vec![None; graph.nodes().len()];
    let (mut sizes, mut free): (Vec<Bytes>, Vec<usize>) = (Vec::new(), Vec::new());
    for id in graph.ids() {
        let node = graph.node(id);
        let owns = !node.op.is_leaf() && !node.op.is_view();
        let inherited = overwritten(graph, id, &last_use);
        if owns {
            let idle = free.iter().position(|&s| sizes[s] == node.nbytes());
            let slot =
                inherited.and_then(|from| slot_of[from.index()]).or_else(|| idle.map(|i| free.remove(i)));
            slot_of[id.index()] = Some(slot.unwrap_or_else(|| {
                sizes.push(node.nbytes());
                sizes.len() - 1
            }));
        }
        let dying =
            (0..=id.index()).filter(|&n| last_use[n] == id.index() && Some(NodeId::new(n)) != inherited);
        free.extend(dying.filter_map(|n| slot_of[n]));
    }
    (slot_of, sizes)
}

/// The last node that touches the memory of each node; outputs outlive all.
fn last_uses(graph: &ComputeGraph) -> Vec<usize> {
    let mut last: Vec<usize> = (0..graph.nodes().len()).collect();
    for id in graph.ids() {
        for &input in &graph.node(id).inputs {
            last[graph.storage_of(input).index()] = id.index();
        }
    }
    for (value, until) in graph.ids().flat_map(|id| graph.late_reads(id)) {
        let last = &mut last[graph.storage_of(value).index()];
        *last = (*last).max(until.index());
    }
    for &output in graph.outputs() {
        last[graph.storage_of(output).index()] = usize::MAX;
    }
    last
}

/// The operand whose memory `id` may take over: computed, whole, and dead afterwards.
fn overwritten(graph: &ComputeGraph, id: NodeId, last_use: &[usize]) -> Option<NodeId> {
    let node = graph.node(id);
    if !node.op.may_run_in_place() {
        return None;
    }
    let first = node.inputs[0];
    let storage = graph.storage_of(first);
    let source = graph.node(storage);
    let dead = last_use[storage.index()] == id.index();
    let whole = !source.op.is_leaf() && source.nbytes() == node.nbytes();
    let alone = node.inputs[1..].iter().all(|&x| x == first || graph.storage_of(x) != storage);
    (dead && whole && alone).then_some(storage)
}
