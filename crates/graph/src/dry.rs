//! A backend that counts and holds nothing: the planner's walk runs on it.

use std::sync::Arc;

use minfer_tensor::Bytes;

use crate::allocplan::DeviceMemory;
use crate::backend::{
    Backend, BackendError, BatchCounts, BufId, BufKind, BufRef, DeviceSpec, Segment, SegmentId, WeightBytes,
};
use crate::cancel::CancelFlag;
use crate::ir::{WeightDecl, WeightId};

/// Stands for a device that a plan gives nothing to, so that it needn't be opened: it holds no values and runs nothing.
pub fn idle(spec: Arc<dyn DeviceSpec>) -> Box<dyn Backend> {
    Box::new(DryBackend::new(spec))
}

/// Buffers as numbers, for a device of which only the description is known.
pub(crate) struct DryBackend {
    spec: Arc<dyn DeviceSpec>,
    buffers: Vec<Option<(BufKind, Bytes)>>,
    weights: Bytes,
    generation: u64,
}

impl DryBackend {
    pub(crate) fn new(spec: Arc<dyn DeviceSpec>) -> Self {
        Self { spec, buffers: Vec::new(), weights: Bytes::ZERO, generation: 0 }
    }

    fn refuse<T>(&self) -> Result<T, BackendError> {
        let what = "a plan holds no values".to_owned();
        Err(BackendError::Device { backend: self.spec.name().to_owned(), what })
    }
}

impl Backend for DryBackend {
    fn spec(&self) -> &Arc<dyn DeviceSpec> {
        &self.spec
    }

    fn device_memory(&self) -> DeviceMemory {
        DeviceMemory::NoDevice
    }

    fn weights_bytes(&self) -> Bytes {
        self.weights
    }

    fn buffer_bytes(&self, kind: BufKind) -> Bytes {
        self.buffers.iter().flatten().filter(|(k, _)| *k == kind).map(|(_, bytes)| *bytes).sum()
    }

    fn pool_gen(&self) -> u64 {
        self.generation
    }

    fn alloc_buffer(&mut self, kind: BufKind, bytes: Bytes) -> Result<BufId, BackendError> {
        self.generation += 1;
        self.buffers.push(Some((kind, bytes)));
        Ok(BufId::new(self.buffers.len() - 1))
    }

    fn free_buffer(&mut self, id: BufId) {
        self.generation += 1;
        self.buffers[id.index()] = None;
    }

    fn write_host(&mut self, _: BufId, _: &[u8]) -> Result<(), BackendError> {
        self.refuse()
    }

    fn write_host_window(&mut self, _: BufRef, _: &[u8]) -> Result<(), BackendError> {
        self.refuse()
    }

    fn read_host_window(&self, _: BufRef, _: &mut [u8]) -> Result<(), BackendError> {
        self.refuse()
    }

    fn register_weight(
        &mut self,
        _: WeightId,
        decl: &WeightDecl,
        data: WeightBytes,
    ) -> Result<(), BackendError> {
        let charge = self.spec.weight_bytes(decl, data.is_mapped()).total();
        self.weights = self.weights.saturating_add(charge);
        Ok(())
    }

    fn prepare(&mut self, _: Segment<'_>) -> Result<SegmentId, BackendError> {
        self.refuse()
    }

    fn release(&mut self, _: SegmentId) {}

    fn execute(&mut self, _: SegmentId, _: BatchCounts, _: &CancelFlag) -> Result<(), BackendError> {
        self.refuse()
    }
}
