//! A load that runs out of memory half-way.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod common;

use std::sync::Arc;

use common::{arch, host, options};
use minfer_backend_cpu::CpuBackend;
use minfer_engine::{Engine, ErrorKind, ModelFile, Planned};
use minfer_graph::{
    Backend, BackendError, BatchCounts, BufId, BufKind, BufRef, CancelFlag, DeviceMemory, DeviceSpec,
    Segment, SegmentId, WeightBytes, WeightDecl, WeightId,
};
use minfer_tensor::Bytes;

/// A CPU that fails at its `left`-th buffer, as a system does that promised memory and has none.
struct Failing {
    cpu: CpuBackend,
    left: usize,
}

impl Backend for Failing {
    fn spec(&self) -> &Arc<dyn DeviceSpec> {
        self.cpu.spec()
    }

    fn device_memory(&self) -> DeviceMemory {
        self.cpu.device_memory()
    }

    fn weights_bytes(&self) -> Bytes {
        self.cpu.weights_bytes()
    }

    fn buffer_bytes(&self, kind: BufKind) -> Bytes {
        self.cpu.buffer_bytes(kind)
    }

    fn pool_gen(&self) -> u64 {
        self.cpu.pool_gen()
    }

    fn alloc_buffer(&mut self, kind: BufKind, bytes: Bytes) -> Result<BufId, BackendError> {
        self.left = self.left.checked_sub(1).ok_or_else(|| BackendError::OutOfMemory {
            backend: "cpu".to_owned(),
            requested: bytes,
            reason: "scripted".to_owned(),
        })?;
        self.cpu.alloc_buffer(kind, bytes)
    }

    fn free_buffer(&mut self, id: BufId) {
        self.cpu.free_buffer(id);
    }

    fn write_host(&mut self, id: BufId, data: &[u8]) -> Result<(), BackendError> {
        self.cpu.write_host(id, data)
    }

    fn write_host_window(&mut self, window: BufRef, data: &[u8]) -> Result<(), BackendError> {
        self.cpu.write_host_window(window, data)
    }

    fn read_host_window(&self, window: BufRef, out: &mut [u8]) -> Result<(), BackendError> {
        self.cpu.read_host_window(window, out)
    }

    fn register_weight(
        &mut self,
        id: WeightId,
        decl: &WeightDecl,
        data: WeightBytes,
    ) -> Result<(), BackendError> {
        self.cpu.register_weight(id, decl, data)
    }

    fn prepare(&mut self, segment: Segment<'_>) -> Result<SegmentId, BackendError> {
        self.cpu.prepare(segment)
    }

    fn release(&mut self, id: SegmentId) {
        self.cpu.release(id);
    }

    fn execute(
        &mut self,
        id: SegmentId,
        counts: BatchCounts,
        cancel: &CancelFlag,
    ) -> Result<(), BackendError> {
        self.cpu.execute(id, counts, cancel)
    }
}

#[test]
fn s3_there_is_no_engine_until_everything_is_committed() {
    for left in 0.. {
        let (host, cpu) = host(1);
        let file = ModelFile::open(&arch("llama-dense")).unwrap();
        let planned = Planned::new(file, &options(8), &host).unwrap();
        let backend = Box::new(Failing { cpu, left });
        let loaded = Engine::load(planned, vec![backend], &mut |_| {});
        let Err(error) = loaded else {
            assert!(left > 2, "the load took more than {left} buffers");
            return;
        };
        assert_eq!(error.kind(), ErrorKind::Failed);
        assert!(error.to_string().contains("scripted"), "{error}");
    }
}
