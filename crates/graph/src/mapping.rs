//! Where every value of a graph lies: the walk that places them.

use minfer_tensor::Bytes;

use crate::alloc::GraphAllocator;
use crate::backend::{BackendId, Binding, BufRef};
use crate::error::{Error, Result};
use crate::ir::{ComputeGraph, NodeId, Op};
use crate::liveness::{Liveness, crosses};
use crate::scheduler::Assignment;

/// A value that is copied to another backend when the span that computes it has run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crossing {
    /// The value.
    pub node: NodeId,
    /// The span that computes it.
    pub span: usize,
    /// Where it is computed.
    pub from: BufRef,
    /// Its staging buffer.
    pub to: BufRef,
}

/// Where every value of a graph lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// By backend and node: where the backend finds the value; `None` if it doesn't touch it.
    bindings: Vec<Vec<Option<Binding>>>,
    /// By input: its places, one on each backend that reads it.
    inputs: Vec<Vec<BufRef>>,
    /// By output: its place.
    outputs: Vec<BufRef>,
    /// By backend: working memory.
    scratch: Vec<Option<BufRef>>,
    /// In execution order.
    crossings: Vec<Crossing>,
}

impl Mapping {
    /// Where a backend finds each node's value.
    pub fn bindings(&self, backend: BackendId) -> &[Option<Binding>] {
        &self.bindings[backend.index()]
    }

    /// The places of each input, in the order of the graph's inputs: one on each backend that reads it.
    pub fn inputs(&self) -> &[Vec<BufRef>] {
        &self.inputs
    }

    /// The place of each output, in the order of the graph's outputs.
    pub fn outputs(&self) -> &[BufRef] {
        &self.outputs
    }

    /// The working memory of a backend: as large as the largest node of the graph needs.
    pub fn scratch(&self, backend: BackendId) -> Option<BufRef> {
        self.scratch[backend.index()]
    }

    /// Values that are copied between backends, in the order of the spans that compute them.
    pub fn crossings(&self) -> &[Crossing] {
        &self.crossings
    }
}

/// One walk over a graph in execution order.
pub(crate) struct Walk<'a> {
    alloc: &'a mut GraphAllocator,
    graph: &'a ComputeGraph,
    assignment: &'a Assignment,
    live: Liveness,
    mapping: Mapping,
    /// Crossings into each backend so far.
    n_staged: Vec<usize>,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(
        alloc: &'a mut GraphAllocator,
        graph: &'a ComputeGraph,
        assignment: &'a Assignment,
    ) -> Self {
        let n = alloc.ids().count();
        let mapping = Mapping {
            bindings: vec![vec![None; graph.nodes().len()]; n],
            inputs: Vec::new(),
            outputs: Vec::new(),
            scratch: vec![None; n],
            crossings: Vec::new(),
        };
        let live = Liveness::of(graph, assignment, n);
        Self { alloc, graph, assignment, live, mapping, n_staged: vec![0; n] }
    }

    pub(crate) fn run(mut self) -> Result<Mapping> {
        self.place_inputs()?;
        for span in self.assignment.spans() {
            for &id in &span.nodes {
                self.alloc.sweep(id.index());
                for &operand in &self.graph.node(id).inputs {
                    self.import(operand, span.backend)?;
                }
                self.place(id, span.backend)?;
            }
        }
        for &output in self.graph.outputs() {
            let place = self.import(output, self.assignment.backend_of(output))?;
            let Binding::Buffer(place) = place else { unreachable!("the verifier has outputs computed") };
            self.mapping.outputs.push(place);
        }
        self.place_scratch()?;
        self.mapping.crossings.sort_by_key(|crossing| crossing.span);
        Ok(self.mapping)
    }

    /// All inputs before the walk: the host fills them before anything runs, so they may not take a buffer that a value
    /// of this graph had before (rule A8). An input that nobody reads still has a place to be filled.
    fn place_inputs(&mut self) -> Result<()> {
        for &(_, id) in self.graph.inputs() {
            let read_on = |&b: &BackendId| self.live.last_read(b, id).is_some();
            let mut readers: Vec<BackendId> = self.alloc.ids().filter(read_on).collect();
            if readers.is_empty() {
                readers.push(self.alloc.cpu());
            }
            let mut places = Vec::with_capacity(readers.len());
            for backend in readers {
                places.push(self.own(id, backend)?);
            }
            self.mapping.inputs.push(places);
        }
        Ok(())
    }

    /// Gives the result of a node its place: the state it writes, the operand it may overwrite, or a buffer of its own.
    fn place(&mut self, id: NodeId, backend: BackendId) -> Result<()> {
        if self.graph.node(id).op.is_view() {
            self.import(id, backend)?;
            return Ok(());
        }
        let Some(place) = self.in_place(id, backend) else {
            self.own(id, backend)?;
            return Ok(());
        };
        let until = self.live.last_read(backend, id).unwrap_or(id.index());
        self.alloc.slots_mut(backend).extend_buffer_alive(place.id, until);
        self.bind(id, backend, Binding::Buffer(place));
        Ok(())
    }

    /// A buffer of the pool until the last reader.
    fn own(&mut self, id: NodeId, backend: BackendId) -> Result<BufRef> {
        let place = self.alloc.alloc_in_pool(backend, self.graph.node(id).nbytes())?;
        let until = self.live.last_read(backend, id).unwrap_or(id.index());
        self.alloc.slots_mut(backend).keep_until(place.id, until);
        self.bind(id, backend, Binding::Buffer(place));
        Ok(place)
    }

    /// The place of the first operand, if the kernel may write over it: a computed value of this backend, whole, whose
    /// buffer nobody needs after this node and no other operand shows.
    fn in_place(&mut self, id: NodeId, backend: BackendId) -> Option<BufRef> {
        let node = self.graph.node(id);
        let (&first, rest) = node.inputs.split_first()?;
        let storage = self.graph.storage_of(first);
        let computed =
            !self.graph.node(storage).op.is_leaf() && self.assignment.backend_of(storage) == backend;
        let whole = self.graph.node(storage).nbytes() == node.nbytes()
            && self.graph.node(first).nbytes() == node.nbytes();
        if !node.op.may_run_in_place() || !computed || !whole || self.live.survives(storage) {
            return None;
        }
        let place = self.buffer_of(storage, backend)?;
        let shared = rest.iter().any(|&x| self.buffer_of(x, backend).is_some_and(|b| b.id == place.id));
        let last = self.alloc.slots_mut(backend).alive_until(place.id) == Some(id.index());
        (last && !shared).then_some(place)
    }

    /// Binds a value on a backend that reads it.
    fn import(&mut self, id: NodeId, backend: BackendId) -> Result<Binding> {
        if let Some(bound) = self.mapping.bindings[backend.index()][id.index()] {
            return Ok(bound);
        }
        let storage = self.graph.storage_of(id);
        let base = match self.mapping.bindings[backend.index()][storage.index()] {
            Some(bound) => bound,
            None => self.import_storage(storage, backend)?,
        };
        let bound = match base {
            Binding::Weight(weight) => Binding::Weight(weight),
            Binding::Buffer(place) => {
                let offset = place.offset.saturating_add(self.graph.offset_in_storage(id));
                Binding::Buffer(BufRef { offset, len: self.graph.node(id).nbytes(), ..place })
            }
        };
        self.bind(id, backend, bound);
        Ok(bound)
    }

    fn import_storage(&mut self, storage: NodeId, backend: BackendId) -> Result<Binding> {
        let bound = match self.graph.node(storage).op {
            Op::Weight(id) => Binding::Weight(id),
            Op::State(id) => {
                let place = self.alloc.state(id).filter(|place| place.backend == backend);
                Binding::Buffer(place.ok_or(Error::State { id })?)
            }
            _ => Binding::Buffer(self.stage(storage, backend)?),
        };
        self.bind(storage, backend, bound);
        Ok(bound)
    }

    /// A staging buffer for a value of another backend.
    fn stage(&mut self, storage: NodeId, backend: BackendId) -> Result<BufRef> {
        debug_assert!(crosses(self.graph, self.assignment, storage, backend));
        let home = self.assignment.backend_of(storage);
        let from = self.buffer_of(storage, home).expect("operands are placed before their readers");
        let nth = self.n_staged[backend.index()];
        self.n_staged[backend.index()] += 1;
        let to = self.alloc.staging(backend, nth, self.graph.node(storage).nbytes())?;
        let span = self.assignment.span_of(storage);
        self.mapping.crossings.push(Crossing { node: storage, span, from, to });
        Ok(to)
    }

    fn place_scratch(&mut self) -> Result<()> {
        let mut need = vec![Bytes::ZERO; self.mapping.scratch.len()];
        for span in self.assignment.spans() {
            let spec = self.alloc.spec(span.backend);
            let need = &mut need[span.backend.index()];
            *need = (*need).max(spec.scratch_bytes(self.graph, &span.nodes));
        }
        for (backend, need) in self.alloc.ids().zip(need) {
            self.mapping.scratch[backend.index()] = self.alloc.scratch(backend, need)?;
        }
        Ok(())
    }

    fn bind(&mut self, id: NodeId, backend: BackendId, binding: Binding) {
        self.mapping.bindings[backend.index()][id.index()] = Some(binding);
    }

    fn buffer_of(&self, id: NodeId, backend: BackendId) -> Option<BufRef> {
        match self.mapping.bindings[backend.index()][id.index()]? {
            Binding::Buffer(place) => Some(place),
            Binding::Weight(_) => None,
        }
    }
}
