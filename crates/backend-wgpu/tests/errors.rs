//! What fails on the device ends in an error that names it, and the process lives.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use minfer_backend_wgpu::{Adapter, Faults, OpenOptions, WgpuBackend};
use minfer_graph::WeightId;
use minfer_graph::{Backend, BackendError, BatchCounts, BufKind, BufRef, CancelFlag, SegmentId};
use minfer_tensor::{Bytes, DType};
use support::{adapter, buffers, decl, doubling, floats, prepare, read, weight_bytes, window};

const COUNTS: BatchCounts = BatchCounts { tokens: 8, outputs: 0 };

/// A device with a segment that doubles `x` into `y`.
struct Doubling {
    backend: WgpuBackend,
    segment: SegmentId,
    x: BufRef,
    y: BufRef,
}

impl Doubling {
    fn new(adapter: &Adapter, faults: Faults) -> Result<Self, BackendError> {
        let mut backend = adapter.open(OpenOptions { faults, ..Default::default() })?;
        backend.commit_fixed()?;
        let mut buffer = || {
            let id = backend.alloc_buffer(BufKind::Pool, Bytes::new(128))?;
            Ok(window(id, 0, 128))
        };
        let (x, y) = (buffer()?, buffer()?);
        let segment = prepare(&mut backend, &doubling(), &buffers(&[x, y]))?;
        Ok(Self { backend, segment, x, y })
    }

    /// One step as an engine does it.
    fn step(&mut self, value: f32) -> Result<Vec<u8>, BackendError> {
        self.backend.write_host(self.x.id, &floats(&[value; 32]))?;
        self.backend.execute(self.segment, COUNTS, &CancelFlag::new())?;
        let mut out = vec![0; 128];
        self.backend.read_host_window(self.y, &mut out)?;
        Ok(out)
    }

    /// Submissions until the segment is ready.
    fn submissions(adapter: &Adapter) -> u64 {
        Self::new(adapter, Faults::default()).unwrap().backend.counters().submissions
    }
}

#[test]
fn a_refused_allocation_is_out_of_memory_and_changes_nothing() {
    let Some(adapter) = adapter() else { return };
    // Three staging buffers come first.
    let mut backend = adapter
        .open(OpenOptions { faults: Faults { allocation: 4, ..Default::default() }, ..Default::default() })
        .unwrap();
    backend.commit_fixed().unwrap();
    let before = (backend.pool_gen(), backend.pool_len());
    let error = backend.alloc_buffer(BufKind::Pool, Bytes::new(4096)).unwrap_err();
    let BackendError::OutOfMemory { requested, .. } = &error else { panic!("{error}") };
    assert_eq!(*requested, Bytes::new(4096));
    assert!(error.to_string().contains(adapter.name()), "{error}");
    assert_eq!((backend.pool_gen(), backend.pool_len()), before);
    backend.alloc_buffer(BufKind::Pool, Bytes::new(4096)).unwrap();
}

#[test]
fn a_weight_that_finds_no_memory_is_not_registered() {
    let Some(adapter) = adapter() else { return };
    let faults = Faults { allocation: 4, ..Default::default() };
    let mut backend = adapter.open(OpenOptions { faults, ..Default::default() }).unwrap();
    backend.commit_fixed().unwrap();
    let (id, decl) = (WeightId::new(0), decl(DType::F32, 1, 16));
    let error = backend.register_weight(id, &decl, weight_bytes(vec![0; 64])).unwrap_err();
    assert!(matches!(error, BackendError::OutOfMemory { .. }), "{error}");
    assert_eq!(backend.weights_bytes(), Bytes::ZERO);
    backend.register_weight(id, &decl, weight_bytes(vec![0; 64])).unwrap();
    assert_eq!(backend.weights_bytes(), Bytes::new(64));
}

#[test]
fn staging_that_finds_no_memory_is_an_error_of_the_commit() {
    let Some(adapter) = adapter() else { return };
    for allocation in 1..=3 {
        let faults = Faults { allocation, ..Default::default() };
        let mut backend = adapter.open(OpenOptions { faults, ..Default::default() }).unwrap();
        assert!(matches!(backend.commit_fixed(), Err(BackendError::OutOfMemory { .. })));
        assert_eq!(backend.buffer_bytes(BufKind::Scratch), Bytes::ZERO);
        let id = backend.alloc_buffer(BufKind::Pool, Bytes::new(64)).unwrap();
        assert!(backend.write_host(id, &[0; 64]).unwrap_err().to_string().contains("staging"));
    }
}

#[test]
fn a_failed_submission_ends_its_step_and_no_other() {
    let Some(adapter) = adapter() else { return };
    let ready = Doubling::submissions(&adapter);
    // The submission of the segment, then the one of the read.
    for nth in [1, 2] {
        let faults = Faults { submission: ready + nth, ..Default::default() };
        let mut doubling = Doubling::new(&adapter, faults).unwrap();
        let error = doubling.step(1.0).unwrap_err();
        assert!(matches!(error, BackendError::Device { .. }), "{error}");
        assert!(error.to_string().contains(adapter.name()), "{error}");
        assert!(!error.to_string().contains('\n'), "{error}");
        assert_eq!(doubling.step(4.0), Ok(floats(&[8.0; 32])));
    }
}

#[test]
fn a_lost_device_stays_lost_and_another_can_be_opened() {
    let Some(adapter) = adapter() else { return };
    let ready = Doubling::submissions(&adapter);
    let mut doubling = Doubling::new(&adapter, Faults { loss: ready + 1, ..Default::default() }).unwrap();
    for _ in 0..3 {
        let error = doubling.step(1.0).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(adapter.name()) && text.contains("the device was lost"), "{text}");
    }
    let backend = &mut doubling.backend;
    assert!(backend.alloc_buffer(BufKind::Pool, Bytes::new(64)).is_err());
    assert!(
        backend.register_weight(WeightId::new(0), &decl(DType::F32, 1, 1), weight_bytes(vec![0; 4])).is_err()
    );
    assert!(backend.measure_read_bandwidth(Bytes::MIB).is_err());
    let mut other = Doubling::new(&adapter, Faults::default()).unwrap();
    assert_eq!(other.step(2.0), Ok(floats(&[4.0; 32])));
    assert_eq!(read(&other.backend, other.x), floats(&[2.0; 32]));
}

#[test]
fn more_than_a_binding_is_an_error() {
    let Some(adapter) = adapter() else { return };
    let mut backend = adapter.open(OpenOptions::default()).unwrap();
    let most = backend.spec().max_buffer_bytes();
    for bytes in [Bytes::new(u64::MAX), Bytes::new(1 << 60)] {
        assert!(bytes > most);
        let error = backend.alloc_buffer(BufKind::Pool, bytes).unwrap_err();
        assert!(error.to_string().contains(adapter.name()), "{error}");
    }
    assert_eq!(backend.pool_len(), Bytes::ZERO);
}
