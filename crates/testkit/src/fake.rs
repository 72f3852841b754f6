//! A backend without a device: scripted answers, exact accounts, captured segments, hash arithmetic.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use minfer_graph::{
    Backend, BackendError, BackendId, BatchCounts, Binding, BufId, BufKind, BufRef, CNode, CancelFlag,
    ComputeGraph, DeviceMemory, DeviceSpec, NodeId, Op, Segment, SegmentId, StateDecl, WeightBytes,
    WeightCharge, WeightDecl, WeightId, WeightSource,
};

use minfer_tensor::{Bytes, DType};

use crate::machine::{Memory, Source, Step, mix};

/// A device as the planner sees it.
#[derive(Clone, Debug)]
pub struct FakeSpec {
    /// Name in messages.
    pub name: &'static str,
    /// Names of operations without a kernel.
    pub unsupported: Vec<&'static str>,
    /// Working memory of a matrix product or an attention, for each row of the result.
    pub scratch_per_row: u64,
    /// Whether weights are copied even from a mapped file.
    pub copies_weights: bool,
    /// What the backend takes for itself.
    pub fixed: u64,
    /// What exact buffers are rounded up to.
    pub align: u64,
    /// The largest buffer.
    pub max_buffer: u64,
    /// Whether its memory is the host's.
    pub unified: bool,
}

impl FakeSpec {
    /// A CPU: every operation, mapped weights in place.
    pub fn cpu() -> Self {
        Self {
            name: "cpu",
            unsupported: Vec::new(),
            scratch_per_row: 24,
            copies_weights: false,
            fixed: 0,
            align: 1,
            max_buffer: u64::MAX,
            unified: true,
        }
    }

    /// A device: every operation, weights copied, some memory for itself.
    pub fn device() -> Self {
        Self {
            name: "fake",
            scratch_per_row: 40,
            copies_weights: true,
            fixed: 1000,
            align: 64,
            unified: false,
            ..Self::cpu()
        }
    }
}

impl DeviceSpec for FakeSpec {
    fn name(&self) -> &str {
        self.name
    }

    fn device_name(&self) -> String {
        format!("fake {}", self.name)
    }

    fn supports_op(&self, node: &CNode, _: &[DType]) -> bool {
        !self.unsupported.contains(&node.op.name())
    }

    fn scratch_bytes(&self, graph: &ComputeGraph, nodes: &[NodeId]) -> Bytes {
        let nodes = nodes.iter().map(|&id| graph.node(id));
        let needy = nodes.filter(|node| matches!(node.op, Op::MatMul | Op::Attention(_)));
        let rows = needy.map(|node| node.shape.rows as u64).max().unwrap_or_default();
        Bytes::new(self.scratch_per_row * rows)
    }

    fn weight_bytes(&self, decl: &WeightDecl, mapped: bool) -> WeightCharge {
        let bytes = decl.shape.nbytes(decl.dtype).unwrap_or(Bytes::MAX);
        if mapped && !self.copies_weights {
            return WeightCharge { mapped: bytes, anonymous: Bytes::ZERO };
        }
        WeightCharge { mapped: Bytes::ZERO, anonymous: bytes }
    }

    fn fixed_bytes(&self) -> Bytes {
        Bytes::new(self.fixed)
    }

    fn max_buffer_bytes(&self) -> Bytes {
        Bytes::new(self.max_buffer)
    }

    fn buffer_align(&self) -> Bytes {
        Bytes::new(self.align)
    }

    fn is_unified(&self) -> bool {
        self.unified
    }
}

/// What a test may ask of a backend that it gave away.
#[derive(Debug, Default)]
pub struct Probe {
    /// Times that the memory was asked for.
    pub queries: AtomicUsize,
    /// Buffers created.
    pub created: AtomicUsize,
    /// Buffers freed.
    pub freed: AtomicUsize,
    /// Segments prepared.
    pub prepared: AtomicUsize,
    /// Buffers that are still granted before the driver refuses one; starts without a limit.
    pub grants: AtomicUsize,
    /// Segments that still run before the device is lost; starts without a limit.
    pub runs: AtomicUsize,
}

impl Probe {
    /// The number now.
    pub fn count(counter: &AtomicUsize) -> usize {
        counter.load(Ordering::Relaxed)
    }
}

/// The backend. Buffer ids are never used twice, so a captured buffer that was freed or recreated is noticed.
pub struct FakeBackend {
    spec: Arc<dyn DeviceSpec>,
    memory: Vec<DeviceMemory>,
    buffers: Buffers,
    weights: HashMap<WeightId, u64>,
    weights_bytes: Bytes,
    fixed: Bytes,
    segments: Vec<Option<Vec<Step>>>,
    generation: u64,
    probe: Arc<Probe>,
}

impl FakeBackend {
    /// A backend that has no memory of its own to report.
    pub fn new(spec: FakeSpec) -> Self {
        let endless = || AtomicUsize::new(usize::MAX);
        let probe = Probe { grants: endless(), runs: endless(), ..Probe::default() };
        Self {
            spec: Arc::new(spec),
            memory: vec![DeviceMemory::NoDevice],
            buffers: Buffers::default(),
            weights: HashMap::new(),
            weights_bytes: Bytes::ZERO,
            fixed: Bytes::ZERO,
            segments: Vec::new(),
            generation: 0,
            probe: Arc::new(probe),
        }
    }

    /// Scripts the answers to [`Backend::device_memory`], the last one for good. Panics without an answer.
    #[must_use]
    pub fn with_memory(mut self, answers: Vec<DeviceMemory>) -> Self {
        assert!(!answers.is_empty(), "a script has an answer");
        self.memory = answers;
        self
    }

    /// A handle on the counters.
    pub fn probe(&self) -> Arc<Probe> {
        Arc::clone(&self.probe)
    }

    fn device_error(&self, what: impl Into<String>) -> BackendError {
        BackendError::Device { backend: self.spec.name().to_owned(), what: what.into() }
    }

    fn window(&self, at: BufRef, found: usize) -> Result<BufRef, BackendError> {
        if found as u64 <= at.len.get() {
            return Ok(BufRef { len: Bytes::from(found), ..at });
        }
        let backend = self.spec.name().to_owned();
        Err(BackendError::Window { backend, buffer: at.id, expected: at.len, found: Bytes::from(found) })
    }
}

impl Backend for FakeBackend {
    fn spec(&self) -> &Arc<dyn DeviceSpec> {
        &self.spec
    }

    fn device_memory(&self) -> DeviceMemory {
        let nth = self.probe.queries.fetch_add(1, Ordering::Relaxed);
        self.memory[nth.min(self.memory.len() - 1)].clone()
    }

    fn weights_bytes(&self) -> Bytes {
        self.weights_bytes
    }

    fn buffer_bytes(&self, kind: BufKind) -> Bytes {
        let of_kind = self.buffers.0.iter().flatten().filter(|buffer| buffer.kind == kind);
        let fixed = if kind == BufKind::Scratch { self.fixed } else { Bytes::ZERO };
        of_kind.map(|buffer| Bytes::from(buffer.data.len())).sum::<Bytes>().saturating_add(fixed)
    }

    fn commit_fixed(&mut self) -> Result<(), BackendError> {
        assert_eq!(self.fixed, Bytes::ZERO, "taken once");
        self.fixed = self.spec.fixed_bytes();
        Ok(())
    }

    fn pool_gen(&self) -> u64 {
        self.generation
    }

    fn alloc_buffer(&mut self, kind: BufKind, bytes: Bytes) -> Result<BufId, BackendError> {
        let len = bytes.to_usize().filter(|_| self.probe.grants.load(Ordering::Relaxed) > 0);
        let Some(len) = len else {
            let backend = self.spec.name().to_owned();
            return Err(BackendError::OutOfMemory {
                backend,
                requested: bytes,
                reason: "scripted".to_owned(),
            });
        };
        self.probe.grants.fetch_sub(1, Ordering::Relaxed);
        self.probe.created.fetch_add(1, Ordering::Relaxed);
        self.generation += 1;
        self.buffers.0.push(Some(Buffer { kind, data: vec![0; len] }));
        Ok(BufId::new(self.buffers.0.len() - 1))
    }

    fn free_buffer(&mut self, id: BufId) {
        self.probe.freed.fetch_add(1, Ordering::Relaxed);
        self.generation += 1;
        self.buffers.0[id.index()] = None;
    }

    fn write_host(&mut self, id: BufId, data: &[u8]) -> Result<(), BackendError> {
        let held = self.buffers.0[id.index()].as_mut().map(|buffer| &mut buffer.data);
        let Some(held) = held.filter(|held| held.len() == data.len()) else {
            return Err(self.device_error(format!("{id} is not {} bytes long", data.len())));
        };
        held.copy_from_slice(data);
        Ok(())
    }

    fn write_host_window(&mut self, window: BufRef, data: &[u8]) -> Result<(), BackendError> {
        let window = self.window(window, data.len())?;
        match self.buffers.bytes_mut(window) {
            Ok(bytes) => bytes.copy_from_slice(data),
            Err(what) => return Err(self.device_error(what)),
        }
        Ok(())
    }

    fn read_host_window(&self, window: BufRef, out: &mut [u8]) -> Result<(), BackendError> {
        let window = self.window(window, out.len())?;
        out.copy_from_slice(self.buffers.bytes(window).map_err(|what| self.device_error(what))?);
        Ok(())
    }

    fn register_weight(
        &mut self,
        id: WeightId,
        decl: &WeightDecl,
        data: WeightBytes,
    ) -> Result<(), BackendError> {
        let expected = decl.shape.nbytes(decl.dtype).unwrap_or(Bytes::MAX);
        let found = Bytes::from(data.as_slice().len());
        if expected != found {
            let (backend, name) = (self.spec.name().to_owned(), decl.name.clone());
            return Err(BackendError::Weight { backend, name, expected, found });
        }
        self.weights.insert(id, mix(0, data.as_slice()));
        let charge = self.spec.weight_bytes(decl, data.is_mapped());
        self.weights_bytes = self.weights_bytes.saturating_add(charge.total());
        Ok(())
    }

    fn prepare(&mut self, segment: Segment<'_>) -> Result<SegmentId, BackendError> {
        let steps = segment.nodes.iter().map(|&id| capture(&segment, id, &self.weights));
        let steps = steps.collect::<Result<Vec<Step>, String>>().map_err(|what| self.device_error(what))?;
        self.probe.prepared.fetch_add(1, Ordering::Relaxed);
        self.segments.push(Some(steps));
        Ok(SegmentId::new(self.segments.len() - 1))
    }

    fn release(&mut self, id: SegmentId) {
        self.segments[id.index()] = None;
    }

    fn execute(&mut self, id: SegmentId, counts: BatchCounts, _: &CancelFlag) -> Result<(), BackendError> {
        if self.probe.runs.load(Ordering::Relaxed) == 0 {
            return Err(self.device_error("the device is lost"));
        }
        self.probe.runs.fetch_sub(1, Ordering::Relaxed);
        let Self { buffers, segments, .. } = self;
        let ran = match &segments[id.index()] {
            Some(steps) => steps.iter().try_for_each(|step| step.run(buffers, counts)),
            None => Err(format!("{id} was released")),
        };
        ran.map_err(|what| self.device_error(what))
    }
}

fn capture(segment: &Segment<'_>, id: NodeId, weights: &HashMap<WeightId, u64>) -> Result<Step, String> {
    let binding = |x: NodeId| segment.bindings[x.index()].ok_or_else(|| format!("{x} is not bound"));
    let source = |x: NodeId| match binding(x)? {
        Binding::Buffer(place) => Ok(Source::Place(place)),
        Binding::Weight(id) => {
            weights.get(&id).map(|&hash| Source::Weight(hash)).ok_or_else(|| format!("no {id}"))
        }
    };
    for &operand in &segment.graph.node(id).inputs {
        source(operand)?;
    }
    let Binding::Buffer(result) = binding(id)? else { return Err(format!("{id} is bound to a weight")) };
    Ok(Step::new(segment.graph, id, |x| source(x).expect("checked above"), result))
}

struct Buffer {
    kind: BufKind,
    data: Vec<u8>,
}

#[derive(Default)]
struct Buffers(Vec<Option<Buffer>>);

impl Memory for Buffers {
    fn bytes(&self, at: BufRef) -> Result<&[u8], String> {
        let buffer = self.0[at.id.index()].as_ref().ok_or_else(|| format!("{} was freed", at.id))?;
        let range = at.offset.get() as usize..(at.offset.get() + at.len.get()) as usize;
        buffer.data.get(range).ok_or_else(|| format!("{at:?} exceeds its buffer of {}", buffer.data.len()))
    }

    fn bytes_mut(&mut self, at: BufRef) -> Result<&mut [u8], String> {
        let buffer = self.0[at.id.index()].as_mut().ok_or_else(|| format!("{} was freed", at.id))?;
        let range = at.offset.get() as usize..(at.offset.get() + at.len.get()) as usize;
        buffer.data.get_mut(range).ok_or_else(|| format!("{at:?} exceeds its buffer"))
    }
}

/// Weights of a vector, as if mapped from a file or not.
pub struct VecSource {
    /// The bytes.
    pub data: Vec<u8>,
    /// What [`WeightSource::is_mapped`] says.
    pub mapped: bool,
}

impl WeightSource for VecSource {
    fn bytes(&self, range: std::ops::Range<usize>) -> &[u8] {
        &self.data[range]
    }

    fn is_mapped(&self) -> bool {
        self.mapped
    }
}

/// Bytes for a weight that depend on its name only.
pub fn weight_data(decl: &WeightDecl, mapped: bool) -> WeightBytes {
    let len = decl.shape.nbytes(decl.dtype).and_then(Bytes::to_usize).expect("a test's weight is small");
    let seed = mix(0, decl.name.as_bytes());
    let data = (0..len).map(|i| (mix(seed, &[i as u8]) >> 32) as u8).collect();
    WeightBytes::new(Arc::new(VecSource { data, mapped }), 0..len)
}

/// Runs graphs with a buffer for every value and no backend, plan or allocator: what a session must agree with.
pub struct Reference {
    weights: Vec<u64>,
    states: Vec<Vec<u8>>,
}

impl Reference {
    /// The weights are [`weight_data`]; states start as zeros.
    pub fn new(weights: &[WeightDecl], states: &[StateDecl]) -> Self {
        let zeros =
            |decl: &StateDecl| vec![0; decl.nbytes().and_then(Bytes::to_usize).expect("a small state")];
        Self {
            weights: weights.iter().map(|decl| mix(0, weight_data(decl, true).as_slice())).collect(),
            states: states.iter().map(zeros).collect(),
        }
    }

    /// Runs a graph; gives the live rows of every output. Panics on whatever is wrong.
    pub fn run(&mut self, graph: &ComputeGraph, fill: &[(&str, &[u8])], counts: BatchCounts) -> Vec<Vec<u8>> {
        let mut buffers = Buffers(graph.ids().map(|id| self.buffer(graph, id, fill)).collect());
        let place = |id: NodeId| {
            let storage = graph.storage_of(id);
            let (offset, len) = (graph.offset_in_storage(id), graph.node(id).nbytes());
            BufRef { backend: BackendId::new(0), id: BufId::new(storage.index()), offset, len }
        };
        let source = |id: NodeId| match graph.node(graph.storage_of(id)).op {
            Op::Weight(weight) => Source::Weight(self.weights[weight.index()]),
            _ => Source::Place(place(id)),
        };
        for id in graph.ids().filter(|&id| graph.node(id).op.has_work()) {
            Step::new(graph, id, source, place(id)).run(&mut buffers, counts).expect("the reference runs");
        }
        for id in graph.ids() {
            if let (Op::State(state), Some(buffer)) = (&graph.node(id).op, &buffers.0[id.index()]) {
                self.states[state.index()].clone_from(&buffer.data);
            }
        }
        let live = |&id: &NodeId| minfer_graph::scheduler::window_of(graph.node(id), place(id), counts);
        let read = |id| buffers.bytes(live(id)).expect("an output").to_vec();
        graph.outputs().iter().map(read).collect()
    }

    fn buffer(&self, graph: &ComputeGraph, id: NodeId, fill: &[(&str, &[u8])]) -> Option<Buffer> {
        let node = graph.node(id);
        let data = match node.op {
            Op::Weight(_) => return None,
            Op::State(state) => self.states[state.index()].clone(),
            Op::Input(input) => {
                let name = &graph.inputs()[input.index()].0;
                fill.iter().find(|(n, _)| n == name).expect("every input is filled").1.to_vec()
            }
            _ => vec![0; node.nbytes().to_usize().expect("a small value")],
        };
        Some(Buffer { kind: BufKind::Pool, data })
    }
}
