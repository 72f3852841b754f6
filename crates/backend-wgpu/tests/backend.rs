//! The backend's bookkeeping, host access, and what it refuses. One device for all of it.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use minfer_backend_wgpu::{OpenOptions, WgpuBackend};
use minfer_graph::{
    Backend, BackendError, BatchCounts, Binding, BufId, BufKind, BufRef, CancelFlag, GraphBuilder, Rows,
    Shape, WeightId,
};
use minfer_tensor::{Bytes, DType};
use support::{buffers, decl, doubling, floats, prepare, read, weight_bytes, window};

const KINDS: [BufKind; 3] = [BufKind::Pool, BufKind::Kv, BufKind::Scratch];

fn open() -> Option<WgpuBackend> {
    support::open(OpenOptions::default())
}

fn pool(backend: &mut WgpuBackend, bytes: u64) -> BufRef {
    window(backend.alloc_buffer(BufKind::Pool, Bytes::new(bytes)).unwrap(), 0, bytes)
}

fn run(backend: &mut WgpuBackend, segment: minfer_graph::SegmentId, tokens: usize) {
    backend.execute(segment, BatchCounts { tokens, outputs: 0 }, &CancelFlag::new()).unwrap();
}

#[test]
fn b4_buffers_are_counted_where_they_are_created() {
    let Some(mut backend) = open() else { return };
    let fixed = backend.spec().fixed_bytes();
    assert_eq!(KINDS.map(|kind| backend.buffer_bytes(kind)), [Bytes::ZERO, Bytes::ZERO, fixed]);
    let ids = KINDS.map(|kind| backend.alloc_buffer(kind, Bytes::new(1000)).unwrap());
    let more = backend.alloc_buffer(BufKind::Pool, Bytes::new(24)).unwrap();
    let held = KINDS.map(|kind| backend.buffer_bytes(kind).get());
    assert_eq!(held, [1024, 1000, 1000 + fixed.get()]);
    assert_eq!((backend.pool_len().get(), backend.pool_gen()), (1024, 4));
    backend.free_buffer(more);
    backend.free_buffer(more);
    backend.free_buffer(ids[1]);
    let held = KINDS.map(|kind| backend.buffer_bytes(kind).get());
    assert_eq!(held, [1000, 0, 1000 + fixed.get()]);
    assert_eq!(backend.pool_gen(), 6);
}

#[test]
fn b4_a_buffer_is_rounded_to_what_the_description_says() {
    let Some(mut backend) = open() else { return };
    let align = backend.spec().buffer_align();
    let id = backend.alloc_buffer(BufKind::Kv, Bytes::new(1001)).unwrap();
    assert_eq!(Some(backend.buffer_bytes(BufKind::Kv)), Bytes::new(1001).checked_align_up(align));
    backend.write_host(id, &[7; 1001]).unwrap();
    assert_eq!(read(&backend, window(id, 0, 1001)), [7; 1001]);
    assert!(backend.write_host(id, &[7; 1004]).is_err());
}

#[test]
fn a6_every_registered_weight_is_charged_once() {
    let Some(mut backend) = open() else { return };
    let (q, f) = (decl(DType::Q8_0, 3, 32), decl(DType::F32, 1, 16));
    backend.register_weight(WeightId::new(0), &q, weight_bytes(vec![0; 3 * 34])).unwrap();
    for _ in 0..2 {
        backend.register_weight(WeightId::new(1), &f, weight_bytes(vec![0; 64])).unwrap();
    }
    // Device buffers are whole words.
    assert_eq!(backend.weights_bytes(), Bytes::new(104 + 64));
    for mapped in [false, true] {
        let charge = backend.spec().weight_bytes(&q, mapped);
        assert_eq!((charge.mapped, charge.anonymous), (Bytes::ZERO, Bytes::new(104)));
    }
    let error = backend.register_weight(WeightId::new(2), &f, weight_bytes(vec![0; 63])).unwrap_err();
    assert_eq!(error.to_string(), "wgpu: w: expected 0.000061 MiB of weights, found 0.00006 MiB");
}

#[test]
fn a6_pieces_of_a_weight_are_charged_as_they_are_made() {
    let weight_chunk = Some(Bytes::new(70));
    let Some(mut backend) = support::open(OpenOptions { weight_chunk, ..Default::default() }) else { return };
    let two_rows_a_piece = decl(DType::Q8_0, 5, 32);
    let charge = backend.spec().weight_bytes(&two_rows_a_piece, true).anonymous;
    assert_eq!(charge, Bytes::new(68 + 68 + 36));
    backend.register_weight(WeightId::new(0), &two_rows_a_piece, weight_bytes(vec![0; 170])).unwrap();
    assert_eq!(backend.weights_bytes(), charge);
    let too_wide = decl(DType::Q8_0, 1, 96);
    assert_eq!(backend.spec().weight_bytes(&too_wide, true).anonymous, Bytes::MAX);
    let error = backend.register_weight(WeightId::new(1), &too_wide, weight_bytes(vec![0; 102])).unwrap_err();
    assert!(error.to_string().contains("a row is longer than"), "{error}");
}

#[test]
fn a7_host_access_is_windowed_at_any_byte() {
    let Some(mut backend) = open() else { return };
    let whole = pool(&mut backend, 16);
    assert_eq!(read(&backend, whole), [0; 16]);
    backend.write_host(whole.id, &[9; 16]).unwrap();
    // Within a word, across words, to the end.
    for (offset, data) in [(5, &[1, 2][..]), (2, &[3, 4, 5]), (8, &[6; 4]), (13, &[7, 7, 7])] {
        backend.write_host_window(window(whole.id, offset, data.len() as u64), data).unwrap();
    }
    assert_eq!(read(&backend, whole), [9, 9, 3, 4, 5, 1, 2, 9, 6, 6, 6, 6, 9, 7, 7, 7]);
    assert_eq!(read(&backend, window(whole.id, 3, 6)), [4, 5, 1, 2, 9, 6]);
    for (offset, len, n) in [(4, 8, 9), (12, 8, 1), (u64::MAX, 8, 1)] {
        let window = window(whole.id, offset, len);
        let error = backend.write_host_window(window, &vec![0; n]).unwrap_err();
        assert!(matches!(error, BackendError::Window { .. }), "{error}");
        assert!(backend.read_host_window(window, &mut vec![0; n]).is_err());
    }
    assert!(backend.write_host(whole.id, &[0; 15]).is_err());
    backend.free_buffer(whole.id);
    assert!(backend.write_host(whole.id, &[0; 16]).is_err());
}

#[test]
fn a7_large_values_go_in_pieces() {
    let Some(mut backend) = open() else { return };
    // More than both halves of the upload buffer, and than the read-back buffer.
    let data: Vec<u8> = (0..9u32 << 18).flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let whole = pool(&mut backend, data.len() as u64);
    backend.write_host(whole.id, &data).unwrap();
    assert!(read(&backend, whole) == data);
    let part = window(whole.id, 3, data.len() as u64 - 5);
    assert!(read(&backend, part) == data[3..data.len() - 2]);
}

#[test]
fn b2_only_live_rows_are_computed() {
    let Some(mut backend) = open() else { return };
    let [x, y] = [0, 1].map(|_| pool(&mut backend, 128));
    backend.write_host(x.id, &floats(&[1.0; 32])).unwrap();
    backend.write_host(y.id, &[0xff; 128]).unwrap();
    let segment = prepare(&mut backend, &doubling(), &buffers(&[x, y])).unwrap();
    run(&mut backend, segment, 3);
    let found = read(&backend, y);
    assert_eq!(found[..48], floats(&[2.0; 12]));
    assert_eq!(found[48..], [0xff; 80]);
    let before = backend.counters();
    run(&mut backend, segment, 0);
    assert_eq!(backend.counters().dispatches, before.dispatches);
}

#[test]
fn a9_a_prepared_segment_runs_again_and_again_on_buffers_that_stay() {
    let Some(mut backend) = open() else { return };
    let [x, y] = [0, 1].map(|_| pool(&mut backend, 128));
    let segment = prepare(&mut backend, &doubling(), &buffers(&[x, y])).unwrap();
    let generation = backend.pool_gen();
    for step in 1..20 {
        let value = step as f32;
        backend.write_host(x.id, &floats(&[value; 32])).unwrap();
        let before = backend.counters();
        run(&mut backend, segment, 1 + step % 8);
        let after = backend.counters();
        // The write goes with the segment.
        assert_eq!((after.submissions - before.submissions, after.dispatches - before.dispatches), (1, 1));
        assert_eq!(read(&backend, window(y.id, 0, 16)), floats(&[2.0 * value; 4]));
    }
    assert_eq!(backend.pool_gen(), generation);
}

#[test]
fn a_view_starts_anywhere_in_a_buffer() {
    let Some(mut backend) = open() else { return };
    let whole = pool(&mut backend, 512);
    let (x, y) = (window(whole.id, 12, 128), window(whole.id, 236, 128));
    backend.write_host_window(x, &floats(&[3.0; 32])).unwrap();
    let segment = prepare(&mut backend, &doubling(), &buffers(&[x, y])).unwrap();
    run(&mut backend, segment, 8);
    let mut expected = vec![0; 512];
    expected[12..140].copy_from_slice(&floats(&[3.0; 32]));
    expected[236..364].copy_from_slice(&floats(&[6.0; 32]));
    assert!(read(&backend, whole) == expected);
}

#[test]
fn a_freed_buffer_takes_its_programs_with_it() {
    let Some(mut backend) = open() else { return };
    let [x, y] = [0, 1].map(|_| pool(&mut backend, 128));
    let segment = prepare(&mut backend, &doubling(), &buffers(&[x, y])).unwrap();
    run(&mut backend, segment, 8);
    backend.free_buffer(y.id);
    let counts = BatchCounts { tokens: 8, outputs: 0 };
    let error = backend.execute(segment, counts, &CancelFlag::new()).unwrap_err();
    assert!(error.to_string().ends_with("segment0 is not prepared"), "{error}");
}

#[test]
fn a_cancelled_run_is_an_error_and_the_next_one_runs() {
    let Some(mut backend) = open() else { return };
    let [x, y] = [0, 1].map(|_| pool(&mut backend, 128));
    let segment = prepare(&mut backend, &doubling(), &buffers(&[x, y])).unwrap();
    let cancel = CancelFlag::new();
    cancel.cancel();
    let counts = BatchCounts { tokens: 8, outputs: 0 };
    assert_eq!(backend.execute(segment, counts, &cancel), Err(BackendError::Cancelled));
    cancel.reset();
    assert_eq!(backend.execute(segment, counts, &cancel), Ok(()));
}

#[test]
fn windows_that_do_not_hold_a_value_are_refused() {
    let Some(mut backend) = open() else { return };
    let [x, y] = [0, 1].map(|_| pool(&mut backend, 256));
    let mut message = |place: BufRef| {
        let bindings = buffers(&[window(x.id, 0, 128), place]);
        prepare(&mut backend, &doubling(), &bindings).unwrap_err().to_string()
    };
    let short = message(window(x.id, 128, 127));
    assert_eq!(short, "wgpu: buf0: expected 0.000121 MiB, found 0.000122 MiB");
    assert!(message(window(x.id, 200, 128)).contains("expected 0.000244 MiB"));
    assert!(message(window(BufId::new(9), 0, 128)).starts_with("wgpu: buf9: expected 0 MiB"));
    assert_eq!(message(window(y.id, 126, 128)), "wgpu: %1 has a value at 126, not a multiple of 4");
    assert_eq!(message(window(x.id, 64, 128)), "wgpu: %1 would overwrite its operand %0");
}

#[test]
fn segments_that_lack_something_are_refused() {
    let Some(mut backend) = open() else { return };
    let mut b = GraphBuilder::new();
    let w = b.weight(WeightId::new(0), &decl(DType::Q8_0, 4, 32)).unwrap();
    let x = b.input("x", DType::F32, Shape::new(2, 32), Rows::PerToken(1)).unwrap();
    let y = b.mat_mul(w, x).unwrap();
    b.output(y);
    let graph = b.finish().unwrap();
    let all = pool(&mut backend, 512);
    let places = [window(all.id, 0, 0), window(all.id, 0, 256), window(all.id, 256, 32)];
    let mut bindings = buffers(&places);
    bindings[0] = Some(Binding::Weight(WeightId::new(0)));
    let error = prepare(&mut backend, &graph, &bindings).unwrap_err().to_string();
    assert_eq!(error, "wgpu: %0 reads w0, which was not registered");
    bindings[2] = None;
    let error = prepare(&mut backend, &graph, &bindings).unwrap_err().to_string();
    assert_eq!(error, "wgpu: %2 has no place in memory");
}

#[test]
fn the_read_bandwidth_is_measured() {
    let Some(mut backend) = open() else { return };
    let bandwidth = backend.measure_read_bandwidth(Bytes::MAX).unwrap();
    assert!(bandwidth.is_finite() && bandwidth > 1e6, "{bandwidth}");
}
