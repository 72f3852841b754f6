//! A device made of another backend: its kernels and its memory, under another name and with scripted failures.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use minfer_graph::{
    Backend, BackendError, BatchCounts, BufId, BufKind, BufRef, CNode, CancelFlag, ComputeGraph,
    DeviceMemory, DeviceSpec, NodeId, Segment, SegmentId, WeightBytes, WeightCharge, WeightDecl, WeightId,
};
use minfer_tensor::{Bytes, DType};

/// The description of a [`Scripted`] device: that of the inner backend, but weights are copied.
pub struct ScriptedSpec {
    /// The description of the backend that does the work.
    pub inner: Arc<dyn DeviceSpec>,
    /// Whether the device says that its memory is the host's.
    pub unified: bool,
    /// Names of operations without a kernel.
    pub unsupported: Vec<&'static str>,
    /// What the device takes for itself.
    pub fixed: u64,
}

/// Name of a scripted device.
pub const DEVICE: &str = "scripted";

impl ScriptedSpec {
    /// A device with memory of its own, some of which it takes for itself.
    pub fn new(inner: Arc<dyn DeviceSpec>) -> Self {
        Self { inner, unified: false, unsupported: Vec::new(), fixed: 4096 }
    }
}

impl DeviceSpec for ScriptedSpec {
    fn name(&self) -> &str {
        DEVICE
    }

    fn device_name(&self) -> String {
        "scripted device".to_owned()
    }

    fn supports_op(&self, node: &CNode, operands: &[DType]) -> bool {
        !self.unsupported.contains(&node.op.name()) && self.inner.supports_op(node, operands)
    }

    fn scratch_bytes(&self, graph: &ComputeGraph, nodes: &[NodeId]) -> Bytes {
        self.inner.scratch_bytes(graph, nodes)
    }

    fn weight_bytes(&self, decl: &WeightDecl, mapped: bool) -> WeightCharge {
        let anonymous = self.inner.weight_bytes(decl, mapped).total();
        WeightCharge { mapped: Bytes::ZERO, anonymous }
    }

    fn fixed_bytes(&self) -> Bytes {
        Bytes::new(self.fixed)
    }

    fn is_unified(&self) -> bool {
        self.unified
    }
}

/// What is still granted before a device fails; starts without a limit. Shared with the test that scripts it.
#[derive(Debug)]
pub struct Grants {
    /// Buffers.
    pub buffers: AtomicUsize,
    /// Weights.
    pub weights: AtomicUsize,
    /// Runs of a segment.
    pub runs: AtomicUsize,
}

impl Default for Grants {
    fn default() -> Self {
        let endless = || AtomicUsize::new(usize::MAX);
        Self { buffers: endless(), weights: endless(), runs: endless() }
    }
}

/// The device.
pub struct Scripted {
    inner: Box<dyn Backend>,
    spec: Arc<dyn DeviceSpec>,
    fixed: Bytes,
    grants: Arc<Grants>,
}

impl Scripted {
    /// A device described by `spec`, on which `inner` does the work.
    pub fn new(inner: Box<dyn Backend>, spec: Arc<dyn DeviceSpec>, grants: Arc<Grants>) -> Self {
        Self { inner, spec, fixed: Bytes::ZERO, grants }
    }

    fn take(&self, left: &AtomicUsize, requested: Bytes) -> Result<(), BackendError> {
        let less = |left: usize| if left == usize::MAX { Some(left) } else { left.checked_sub(1) };
        let taken = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        taken.map(|_| ()).map_err(|_| {
            let (backend, reason) = (self.spec.name().to_owned(), "scripted".to_owned());
            BackendError::OutOfMemory { backend, requested, reason }
        })
    }
}

impl Backend for Scripted {
    fn spec(&self) -> &Arc<dyn DeviceSpec> {
        &self.spec
    }

    fn device_memory(&self) -> DeviceMemory {
        self.inner.device_memory()
    }

    fn weights_bytes(&self) -> Bytes {
        self.inner.weights_bytes()
    }

    fn buffer_bytes(&self, kind: BufKind) -> Bytes {
        let fixed = if kind == BufKind::Scratch { self.fixed } else { Bytes::ZERO };
        self.inner.buffer_bytes(kind).saturating_add(fixed)
    }

    fn pool_gen(&self) -> u64 {
        self.inner.pool_gen()
    }

    fn commit_fixed(&mut self) -> Result<(), BackendError> {
        self.fixed = self.spec.fixed_bytes();
        Ok(())
    }

    fn alloc_buffer(&mut self, kind: BufKind, bytes: Bytes) -> Result<BufId, BackendError> {
        self.take(&self.grants.buffers, bytes)?;
        self.inner.alloc_buffer(kind, bytes)
    }

    fn free_buffer(&mut self, id: BufId) {
        self.inner.free_buffer(id);
    }

    fn write_host(&mut self, id: BufId, data: &[u8]) -> Result<(), BackendError> {
        self.inner.write_host(id, data)
    }

    fn write_host_window(&mut self, window: BufRef, data: &[u8]) -> Result<(), BackendError> {
        self.inner.write_host_window(window, data)
    }

    fn read_host_window(&self, window: BufRef, out: &mut [u8]) -> Result<(), BackendError> {
        self.inner.read_host_window(window, out)
    }

    fn register_weight(
        &mut self,
        id: WeightId,
        decl: &WeightDecl,
        data: WeightBytes,
    ) -> Result<(), BackendError> {
        self.take(&self.grants.weights, Bytes::from(data.as_slice().len()))?;
        self.inner.register_weight(id, decl, data)
    }

    fn prepare(&mut self, segment: Segment<'_>) -> Result<SegmentId, BackendError> {
        self.inner.prepare(segment)
    }

    fn release(&mut self, id: SegmentId) {
        self.inner.release(id);
    }

    fn execute(
        &mut self,
        id: SegmentId,
        counts: BatchCounts,
        cancel: &CancelFlag,
    ) -> Result<(), BackendError> {
        if self.grants.runs.load(Ordering::Relaxed) == 0 {
            let backend = self.spec.name().to_owned();
            return Err(BackendError::Device { backend, what: "the device is lost".to_owned() });
        }
        self.take(&self.grants.runs, Bytes::ZERO)?;
        self.inner.execute(id, counts, cancel)
    }
}
