//! The backend's bookkeeping, and what it refuses.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::ops::Range;
use std::sync::Arc;

use minfer_backend_cpu::{CpuBackend, CpuSpec};
use minfer_graph::{
    Backend, BackendError, BackendId, BatchCounts, Binding, BufId, BufKind, BufRef, CancelFlag, ComputeGraph,
    GraphBuilder, NodeId, Op, Rows, Segment, SegmentId, Shape, WeightBytes, WeightDecl, WeightId,
    WeightSource,
};
use minfer_tensor::{Bytes, DType};

struct Source(Vec<u8>, bool);

impl WeightSource for Source {
    fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.0[range]
    }
    fn is_mapped(&self) -> bool {
        self.1
    }
}

fn backend() -> CpuBackend {
    CpuBackend::new(CpuSpec::detect(2)).unwrap()
}

fn decl(dtype: DType, rows: usize, cols: usize) -> WeightDecl {
    WeightDecl { name: "w".into(), dtype, shape: Shape::new(rows, cols), multiplied: true }
}

fn window(id: BufId, offset: u64, len: u64) -> BufRef {
    BufRef { backend: BackendId::new(0), id, offset: Bytes::new(offset), len: Bytes::new(len) }
}

fn whole(backend: &CpuBackend, id: BufId, len: u64) -> Vec<u8> {
    let mut data = vec![0; len as usize];
    backend.read_host_window(window(id, 0, len), &mut data).unwrap();
    data
}

/// Prepares all computed nodes of a graph.
fn prepare(
    backend: &mut CpuBackend,
    graph: &ComputeGraph,
    bindings: &[Option<Binding>],
    scratch: Option<BufRef>,
) -> Result<SegmentId, BackendError> {
    let computed = |id: &NodeId| !graph.node(*id).op.is_leaf() && graph.node(*id).op != Op::Reshape;
    let nodes: Vec<NodeId> = graph.ids().filter(computed).collect();
    backend.prepare(Segment { graph, nodes: &nodes, bindings, scratch })
}

/// `x * 2` of `[8, 4]`.
fn doubling() -> ComputeGraph {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, Shape::new(8, 4), Rows::PerToken(1)).unwrap();
    let y = b.scale(x, 2.0).unwrap();
    b.output(y);
    b.finish().unwrap()
}

fn buffers(places: &[BufRef]) -> Vec<Option<Binding>> {
    places.iter().map(|&place| Some(Binding::Buffer(place))).collect()
}

fn message(result: Result<SegmentId, BackendError>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn a6_every_registered_weight_is_charged_once() {
    let mut backend = CpuBackend::new(CpuSpec::detect(2).with_repack(false)).unwrap();
    let mapped = Arc::new(Source(vec![0; 4 * 34], true));
    let owned = Arc::new(Source(vec![0; 64], false));
    backend
        .register_weight(WeightId::new(0), &decl(DType::Q8_0, 4, 32), WeightBytes::new(mapped, 0..136))
        .unwrap();
    for _ in 0..2 {
        let data = WeightBytes::new(owned.clone(), 0..64);
        backend.register_weight(WeightId::new(1), &decl(DType::F32, 1, 16), data).unwrap();
    }
    assert_eq!(backend.weights_bytes(), Bytes::new(136 + 64));
    let spec = backend.spec().clone();
    let (q, f) = (decl(DType::Q8_0, 4, 32), decl(DType::F32, 1, 16));
    assert_eq!(
        (spec.weight_bytes(&q, true).mapped, spec.weight_bytes(&q, true).anonymous),
        (Bytes::new(136), Bytes::ZERO)
    );
    assert_eq!(spec.weight_bytes(&f, false).anonymous, Bytes::new(64));
}

#[test]
fn a6_a_packed_weight_is_charged_by_its_panels_and_its_source_is_let_go() {
    let mut backend = backend();
    let source = Arc::new(Source(vec![0; 20 * 34], true));
    let packed = decl(DType::Q8_0, 20, 32);
    let looked_up = WeightDecl { multiplied: false, ..packed.clone() };
    let data = || WeightBytes::new(source.clone(), 0..20 * 34);
    for _ in 0..2 {
        backend.register_weight(WeightId::new(0), &packed, data()).unwrap();
    }
    assert_eq!(Arc::strong_count(&source), 1);
    assert_eq!(backend.weights_bytes(), Bytes::new(32 * 34));
    backend.register_weight(WeightId::new(1), &looked_up, data()).unwrap();
    assert_eq!(backend.weights_bytes(), Bytes::new((32 + 20) * 34));
    let spec = backend.spec().clone();
    let charges = [&packed, &looked_up].map(|decl| spec.weight_bytes(decl, true));
    assert_eq!(charges.map(|charge| charge.anonymous), [Bytes::new(32 * 34), Bytes::ZERO]);
    assert_eq!(charges.map(|charge| charge.mapped), [Bytes::ZERO, Bytes::new(20 * 34)]);
}

#[test]
fn weights_that_are_not_their_declaration_are_refused() {
    let mut backend = backend();
    let source = Arc::new(Source(vec![0; 100], false));
    let short = WeightBytes::new(source.clone(), 0..63);
    let error = backend.register_weight(WeightId::new(0), &decl(DType::F32, 1, 16), short).unwrap_err();
    assert_eq!(error.to_string(), "cpu: w: expected 0.000061 MiB of weights, found 0.00006 MiB");
    let address = source.0.as_ptr().addr();
    let odd = if address.is_multiple_of(2) { 1..65 } else { 0..64 };
    let odd = WeightBytes::new(source, odd);
    let error = backend.register_weight(WeightId::new(0), &decl(DType::F32, 1, 16), odd).unwrap_err();
    assert_eq!(error.to_string(), "cpu: w: F32 weights at an address that is no multiple of 4");
}

#[test]
fn b4_buffers_are_counted_where_they_are_allocated() {
    let mut backend = backend();
    let kinds = [BufKind::Pool, BufKind::Kv, BufKind::Scratch];
    let ids = kinds.map(|kind| backend.alloc_buffer(kind, Bytes::new(1000)).unwrap());
    let more = backend.alloc_buffer(BufKind::Pool, Bytes::new(24)).unwrap();
    assert_eq!(kinds.map(|kind| backend.buffer_bytes(kind).get()), [1024, 1000, 1000]);
    assert_eq!((backend.pool_len().get(), backend.alloc_count()), (1024, 4));
    backend.free_buffer(more);
    backend.free_buffer(more);
    backend.free_buffer(ids[1]);
    assert_eq!(kinds.map(|kind| backend.buffer_bytes(kind).get()), [1000, 0, 1000]);
    assert_eq!((backend.alloc_count(), backend.pool_gen()), (6, 6));
    let refused = backend.alloc_buffer(BufKind::Pool, Bytes::new(1 << 60)).unwrap_err();
    assert!(
        matches!(refused, BackendError::OutOfMemory { requested, .. } if requested == Bytes::new(1 << 60))
    );
    assert_eq!(backend.buffer_bytes(BufKind::Pool).get(), 1000);
}

#[test]
fn a7_host_access_is_windowed() {
    let mut backend = backend();
    let id = backend.alloc_buffer(BufKind::Pool, Bytes::new(16)).unwrap();
    assert_eq!(whole(&backend, id, 16), [0; 16]);
    backend.write_host_window(window(id, 4, 8), &[1, 2]).unwrap();
    assert_eq!(whole(&backend, id, 16)[3..7], [0, 1, 2, 0]);
    for (offset, len, n) in [(4, 8, 9), (12, 8, 1), (u64::MAX, 8, 1)] {
        let error = backend.write_host_window(window(id, offset, len), &vec![0; n]).unwrap_err();
        assert!(matches!(error, BackendError::Window { .. }), "{error}");
        assert!(backend.read_host_window(window(id, offset, len), &mut vec![0; n]).is_err());
    }
    assert!(backend.write_host(id, &[0; 15]).is_err());
    backend.free_buffer(id);
    assert!(backend.write_host(id, &[0; 16]).is_err());
}

#[test]
fn b2_only_live_rows_are_computed() {
    let mut backend = backend();
    let [x, y] = [0, 1].map(|_| backend.alloc_buffer(BufKind::Pool, Bytes::new(128)).unwrap());
    backend.write_host(x, &1f32.to_le_bytes().repeat(32)).unwrap();
    backend.write_host(y, &[0xff; 128]).unwrap();
    let bindings = buffers(&[window(x, 0, 128), window(y, 0, 128)]);
    let segment = prepare(&mut backend, &doubling(), &bindings, None).unwrap();
    backend.execute(segment, BatchCounts { tokens: 3, outputs: 0 }, &CancelFlag::new()).unwrap();
    let found = whole(&backend, y, 128);
    assert_eq!(found[..48], 2f32.to_le_bytes().repeat(12));
    assert_eq!(found[48..], [0xff; 80]);
}

#[test]
fn a_freed_buffer_takes_its_programs_with_it() {
    let mut backend = backend();
    let [x, y] = [0, 1].map(|_| backend.alloc_buffer(BufKind::Pool, Bytes::new(128)).unwrap());
    let bindings = buffers(&[window(x, 0, 128), window(y, 0, 128)]);
    let segment = prepare(&mut backend, &doubling(), &bindings, None).unwrap();
    let counts = BatchCounts { tokens: 8, outputs: 0 };
    backend.execute(segment, counts, &CancelFlag::new()).unwrap();
    backend.free_buffer(y);
    assert_eq!(
        backend.execute(segment, counts, &CancelFlag::new()).unwrap_err().to_string(),
        "cpu: segment0 is not prepared"
    );
}

#[test]
fn windows_that_do_not_hold_a_value_are_refused() {
    let mut backend = backend();
    let x = backend.alloc_buffer(BufKind::Pool, Bytes::new(256)).unwrap();
    let graph = doubling();
    let mut try_result = |place: BufRef, scratch: Option<BufRef>| {
        message(prepare(&mut backend, &graph, &buffers(&[window(x, 0, 128), place]), scratch))
    };
    let short = try_result(window(x, 128, 127), None);
    assert_eq!(short, "cpu: buf0: expected 0.000121 MiB, found 0.000122 MiB");
    assert!(try_result(window(x, 200, 128), None).contains("expected 0.000244 MiB"));
    assert!(try_result(window(BufId::new(9), 0, 128), None).starts_with("cpu: buf9: expected 0 MiB"));
    assert_eq!(try_result(window(x, 126, 128), None), "cpu: buf0 at offset 126: expected a multiple of 4");
    assert_eq!(try_result(window(x, 64, 128), None), "cpu: %1 would overwrite its operand %0");
    assert_eq!(try_result(window(x, 128, 128), Some(window(x, 0, 64))), "cpu: %0 lies in the working memory");
}

#[test]
fn segments_that_lack_something_are_refused() {
    let mut backend = backend();
    let mut b = GraphBuilder::new();
    let w = b.weight(WeightId::new(0), &decl(DType::Q8_0, 4, 32)).unwrap();
    let x = b.input("x", DType::F32, Shape::new(2, 32), Rows::PerToken(1)).unwrap();
    let y = b.mat_mul(w, x).unwrap();
    b.output(y);
    let graph = b.finish().unwrap();
    let id = backend.alloc_buffer(BufKind::Pool, Bytes::new(512)).unwrap();
    let mut bindings = buffers(&[window(id, 0, 0), window(id, 0, 256), window(id, 256, 32)]);
    bindings[0] = Some(Binding::Weight(WeightId::new(0)));
    assert_eq!(
        message(prepare(&mut backend, &graph, &bindings, None)),
        "cpu: %0 reads w0, which was not registered"
    );
    let data = WeightBytes::new(Arc::new(Source(vec![0; 136], false)), 0..136);
    backend.register_weight(WeightId::new(0), &decl(DType::Q8_0, 4, 32), data).unwrap();
    let error = message(prepare(&mut backend, &graph, &bindings, None));
    assert!(error.ends_with("of working memory and has none"), "{error}");
    let scratch = backend.alloc_buffer(BufKind::Scratch, Bytes::new(128)).unwrap();
    let error = message(prepare(&mut backend, &graph, &bindings, Some(window(scratch, 0, 128))));
    assert!(error.starts_with("cpu: buf1: expected 0.000122 MiB, found"), "{error}");
    bindings[2] = None;
    assert_eq!(message(prepare(&mut backend, &graph, &bindings, None)), "cpu: %2 has no place in memory");
}

#[test]
fn row_numbers_beyond_the_table_end_the_run_before_it_starts() {
    let mut backend = backend();
    let mut b = GraphBuilder::new();
    let table = b.weight(WeightId::new(0), &decl(DType::F32, 3, 1)).unwrap();
    let ids = b.input("ids", DType::I32, Shape::new(2, 1), Rows::PerToken(1)).unwrap();
    let y = b.get_rows(table, ids).unwrap();
    b.output(y);
    let graph = b.finish().unwrap();
    let data = WeightBytes::new(Arc::new(Source(vec![0; 12], false)), 0..12);
    backend.register_weight(WeightId::new(0), &decl(DType::F32, 3, 1), data).unwrap();
    let id = backend.alloc_buffer(BufKind::Pool, Bytes::new(16)).unwrap();
    let places = [window(id, 0, 0), window(id, 0, 8), window(id, 8, 8)];
    let mut bindings = buffers(&places);
    bindings[0] = Some(Binding::Weight(WeightId::new(0)));
    let segment = prepare(&mut backend, &graph, &bindings, None).unwrap();
    backend.write_host_window(places[1], &[0, 0, 0, 0, 3, 0, 0, 0]).unwrap();
    let error =
        backend.execute(segment, BatchCounts { tokens: 2, outputs: 0 }, &CancelFlag::new()).unwrap_err();
    assert_eq!(error.to_string(), "cpu: %2: row 3 of 3 was asked for");
    backend.execute(segment, BatchCounts { tokens: 1, outputs: 0 }, &CancelFlag::new()).unwrap();
}
