//! The rules of the memory policy, one by one, on buffers and graphs small enough to see through.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

mod common;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use common::*;
use minfer_graph::*;
use minfer_tensor::{Bytes, DType};
use minfer_testkit::fake::{FakeBackend, FakeSpec, Probe, weight_data};
use minfer_testkit::rng::Rng;

fn cpu() -> BackendId {
    BackendId::new(0)
}

fn allocator(budget: Budget) -> GraphAllocator {
    GraphAllocator::new(vec![(Box::new(FakeBackend::new(FakeSpec::cpu())), budget)])
}

fn limited(bytes: u64) -> Budget {
    Budget::Limited(Bytes::new(bytes))
}

fn decl(name: &str, rows: usize) -> WeightDecl {
    WeightDecl { name: name.to_owned(), dtype: DType::F32, shape: Shape::new(rows, 16), multiplied: true }
}

fn register(alloc: &mut GraphAllocator, index: usize, decl: &WeightDecl, mapped: bool) -> Result<()> {
    alloc.register_weight(cpu(), WeightId::new(index), decl, weight_data(decl, mapped))
}

/// `f32 [n, 16]` per token.
fn input(b: &mut GraphBuilder, name: &str, n: usize) -> NodeId {
    b.input(name, DType::F32, Shape::new(n, 16), Rows::PerToken(1)).unwrap()
}

/// Assigns and places a graph on the allocator's backends.
fn place(alloc: &mut GraphAllocator, graph: &ComputeGraph, weights: &[WeightDecl]) -> Result<Mapping> {
    let plan = OffloadPlan::cpu_only(1);
    let scheduler = BackendScheduler::new(alloc, plan, weights, &[], std::slice::from_ref(graph));
    let assignment = scheduler.assign_backends(alloc, graph)?;
    alloc.alloc_graph(graph, &assignment)
}

fn buffer(mapping: &Mapping, id: NodeId) -> BufRef {
    match mapping.bindings(cpu())[id.index()] {
        Some(Binding::Buffer(place)) => place,
        other => panic!("{id} is bound to {other:?}"),
    }
}

#[test]
fn a1_the_request_is_checked_at_its_class() {
    let mut alloc = allocator(limited(511));
    let refused = alloc.alloc_in_pool(cpu(), Bytes::new(257)).unwrap_err();
    let Error::Budget(refused) = refused else { panic!("{refused}") };
    assert_eq!((refused.request, refused.budget), (Bytes::new(512), Bytes::new(511)));
    alloc.set_memory_budget(cpu(), Bytes::new(512));
    let place = alloc.alloc_in_pool(cpu(), Bytes::new(257)).unwrap();
    assert_eq!((place.offset, place.len), (Bytes::ZERO, Bytes::new(257)));
}

#[test]
fn a1_a_refusal_changes_nothing() {
    let mut alloc = allocator(limited(1000));
    alloc.alloc_in_pool(cpu(), Bytes::new(300)).unwrap();
    let (before, generation) = (alloc.memory_report(cpu()), alloc.backend(cpu()).pool_gen());
    alloc.alloc_in_pool(cpu(), Bytes::new(300)).unwrap_err();
    alloc.alloc_in_pool(cpu(), Bytes::MAX).unwrap_err();
    assert_eq!(alloc.memory_report(cpu()), before);
    assert_eq!(alloc.backend(cpu()).pool_gen(), generation);
}

#[test]
fn a1_an_idle_buffer_serves_a_request_that_the_budget_would_refuse() {
    let mut alloc = allocator(limited(512));
    let place = alloc.alloc_in_pool(cpu(), Bytes::new(512)).unwrap();
    alloc.release(place);
    alloc.set_memory_budget(cpu(), Bytes::ZERO);
    let again = alloc.alloc_in_pool(cpu(), Bytes::new(400)).unwrap();
    assert_eq!((again.id, again.len), (place.id, Bytes::new(400)));
    assert_eq!(alloc.memory_report(cpu()).pool_bytes, Bytes::new(512));
    alloc.alloc_in_pool(cpu(), Bytes::new(400)).unwrap_err();
}

#[test]
fn a1_weights_and_kv_count_against_the_pool() {
    let mut alloc = allocator(limited(64 + 1024 + 256));
    register(&mut alloc, 0, &decl("w", 1), true).unwrap();
    let state = StateDecl {
        name: "blk.0.k".to_owned(),
        dtype: DType::F32,
        shape: Shape::new(16, 16),
        layer: 0,
        keys: true,
    };
    alloc.create_state(cpu(), StateId::new(0), &state).unwrap();
    alloc.alloc_in_pool(cpu(), Bytes::new(256)).unwrap();
    let Error::Budget(refused) = alloc.alloc_in_pool(cpu(), Bytes::new(1)).unwrap_err() else { panic!() };
    let numbers = [refused.weights, refused.pooled, refused.request, refused.budget].map(Bytes::get);
    assert_eq!(numbers, [64, 1280, 256, 1344]);
    assert_eq!(alloc.memory_report(cpu()).headroom_bytes(), Some(Bytes::ZERO));
}

#[test]
fn a2_the_allocator_never_asks_the_device_again() {
    let free = |bytes| DeviceMemory::Reported { free: Bytes::new(bytes), total: Bytes::new(4096) };
    let backend = FakeBackend::new(FakeSpec::cpu()).with_memory(vec![free(1024), free(0)]);
    let probe = backend.probe();
    let budget = budget_decision(None, &backend.device_memory()).budget;
    assert_eq!(budget, limited(768));
    let mut alloc = GraphAllocator::new(vec![(Box::new(backend), budget)]);
    // A later answer excludes our own bytes; comparing it with our total would refuse the third buffer.
    for _ in 0..3 {
        alloc.alloc_in_pool(cpu(), Bytes::new(256)).unwrap();
    }
    assert_eq!(Probe::count(&probe.queries), 1);
}

#[test]
fn a2_a_failed_query_charges_and_refuses_nothing() {
    let memory = DeviceMemory::QueryFailed { name: "ERROR_LOST".to_owned() };
    let mut alloc = allocator(budget_decision(None, &memory).budget);
    register(&mut alloc, 0, &decl("w", 4), false).unwrap();
    alloc.alloc_in_pool(cpu(), Bytes::new(1 << 20)).unwrap();
    let report = alloc.memory_report(cpu());
    assert_eq!((report.weights_bytes, report.headroom_bytes()), (Bytes::new(256), None));
}

#[test]
fn a3_an_explicit_budget_gates_the_pool() {
    let memory = DeviceMemory::Reported { free: Bytes::new(1 << 30), total: Bytes::new(1 << 30) };
    let mut alloc = allocator(budget_decision(Some(Bytes::new(256)), &memory).budget);
    alloc.alloc_in_pool(cpu(), Bytes::new(1)).unwrap();
    alloc.alloc_in_pool(cpu(), Bytes::new(1)).unwrap_err();
}

#[test]
fn a4_two_shapes_of_a_class_share_a_buffer() {
    let mut alloc = allocator(Budget::Unbounded);
    let first = alloc.alloc_in_pool(cpu(), Bytes::new(300)).unwrap();
    alloc.release(first);
    let second = alloc.alloc_in_pool(cpu(), Bytes::new(500)).unwrap();
    assert_eq!(second.id, first.id);
    assert_eq!(alloc.memory_report(cpu()).reserved_classes, [(Bytes::new(512), 1)]);
}

#[test]
fn a5_the_report_follows_the_pool() {
    let mut alloc = allocator(limited(2048));
    let small = alloc.alloc_in_pool(cpu(), Bytes::new(200)).unwrap();
    let large = alloc.alloc_in_pool(cpu(), Bytes::new(1000)).unwrap();
    alloc.release(large);
    let report = alloc.memory_report(cpu());
    assert_eq!(report.pool_bytes, Bytes::new(1280));
    assert_eq!(report.pool_bytes, alloc.backend(cpu()).pool_len());
    assert_eq!((report.live_bytes, report.peak_live_bytes), (Bytes::new(256), Bytes::new(1280)));
    assert_eq!((report.idle_slots, report.headroom_bytes()), (1, Some(Bytes::new(768))));
    assert_eq!(report.reserved_classes, [(Bytes::new(256), 1), (Bytes::new(1024), 1)]);
    alloc.release(small);
    alloc.release(small);
    assert_eq!(alloc.memory_report(cpu()).live_bytes, Bytes::ZERO);
    assert_eq!(alloc.memory_report(cpu()).idle_slots, 2);
}

#[test]
fn a6_every_weight_is_charged_mapped_or_not() {
    let mut alloc = allocator(limited(64 + 128));
    register(&mut alloc, 0, &decl("mapped", 1), true).unwrap();
    register(&mut alloc, 1, &decl("copied", 2), false).unwrap();
    let report = alloc.memory_report(cpu());
    assert_eq!((report.weights_bytes, report.mapped_bytes), (Bytes::new(192), Bytes::new(64)));
    assert_eq!(report.anonymous_bytes(), Bytes::new(128));
    assert_eq!(report.weights_bytes, alloc.backend(cpu()).weights_bytes());
    register(&mut alloc, 2, &decl("third", 1), true).unwrap_err();
    assert_eq!(alloc.backend(cpu()).weights_bytes(), Bytes::new(192));
}

#[test]
fn a6_a_weight_that_the_backend_refuses_is_not_charged() {
    let mut alloc = allocator(Budget::Unbounded);
    let short = weight_data(&decl("w", 1), true);
    alloc.register_weight(cpu(), WeightId::new(0), &decl("w", 2), short).unwrap_err();
    assert_eq!(alloc.memory_report(cpu()).weights_bytes, Bytes::ZERO);
}

#[test]
fn a7_an_input_is_as_long_as_its_value_and_not_as_its_buffer() {
    let mut alloc = allocator(Budget::Unbounded);
    let place = alloc.alloc_in_pool(cpu(), Bytes::new(300)).unwrap();
    alloc.fill_input("x", place, &[7; 300]).unwrap();
    for wrong in [299, 301, 512] {
        let refused = alloc.fill_input("x", place, &vec![0; wrong]).unwrap_err();
        assert_eq!(refused.to_string(), format!("input \"x\": expected 300 bytes, found {wrong}"));
    }
    let mut out = [0; 300];
    alloc.backend(cpu()).read_host_window(place, &mut out).unwrap();
    assert_eq!(out, [7; 300]);
    alloc.backend(cpu()).read_host_window(place, &mut [0; 301]).unwrap_err();
}

#[test]
fn a7_a_read_is_as_long_as_the_rows_that_are_there() {
    let setup = Setup::cpu(5);
    let (mut runner, _) = setup.start();
    let counts = BatchCounts { tokens: 3, outputs: 2 };
    let rung = rung_for(BATCH, 3, 2).unwrap();
    assert_eq!((rung.tokens, rung.outputs), (8, 8));
    let batch = Batch::new(&mut Rng::new(0), rung, counts, 0);
    run(&mut runner, &setup, &batch);
    let row = 50 * 4;
    runner.read_output(0, &mut vec![0; 2 * row]).unwrap();
    let refused = runner.read_output(0, &mut vec![0; 2 * row + 1]).unwrap_err();
    assert!(matches!(refused, Error::Length { .. }), "{refused}");
}

#[test]
fn a8_an_input_takes_no_buffer_that_the_walk_released() {
    let mut b = GraphBuilder::new();
    let first = input(&mut b, "first", 4);
    let w = decl("w", 1);
    let norm = b.weight(WeightId::new(0), &w).unwrap();
    let x = b.rms_norm(first, norm, 0.0).unwrap();
    let x = b.rms_norm(x, norm, 0.0).unwrap();
    let x = b.rms_norm(x, norm, 0.0).unwrap();
    // Declared and read last, filled before anything runs.
    let last = input(&mut b, "last", 4);
    let sum = b.add(x, last).unwrap();
    b.output(sum);
    let graph = b.finish().unwrap();
    let mapping = place(&mut allocator(Budget::Unbounded), &graph, &[w]).unwrap();
    let late = buffer(&mapping, last).id;
    for id in graph.ids().filter(|&id| graph.node(id).op.has_work()) {
        assert_ne!(buffer(&mapping, id).id, late, "{id} lies where the last input waits");
    }
}

#[test]
fn a8_an_alias_of_an_alias_and_a_view_of_a_view_extend_the_buffer() {
    let mut b = GraphBuilder::new();
    let x = input(&mut b, "x", 4);
    let w = decl("w", 1);
    let norm = b.weight(WeightId::new(0), &w).unwrap();
    let base = b.rms_norm(x, norm, 0.0).unwrap();
    let once = b.scale(base, 2.0).unwrap();
    let twice = b.scale(once, 2.0).unwrap();
    let view = b.reshape(twice, Shape::new(8, 8)).unwrap();
    let view = b.reshape(view, Shape::new(16, 4)).unwrap();
    // Work in between that would take the buffer if it were free.
    let other = b.rms_norm(x, norm, 0.0).unwrap();
    let other = b.rms_norm(other, norm, 0.0).unwrap();
    let last = b.softcap(view, 1.0).unwrap();
    b.output(other);
    b.output(last);
    let graph = b.finish().unwrap();
    let mapping = place(&mut allocator(Budget::Unbounded), &graph, &[w]).unwrap();
    let home = buffer(&mapping, base).id;
    for alias in [once, twice, view, last] {
        assert_eq!(buffer(&mapping, alias).id, home, "{alias} runs in place");
    }
    assert_ne!(buffer(&mapping, other).id, home);
}

#[test]
fn a8_nothing_runs_in_place_over_what_is_still_needed() {
    let mut b = GraphBuilder::new();
    let x = input(&mut b, "x", 4);
    let w = decl("w", 1);
    let norm = b.weight(WeightId::new(0), &w).unwrap();
    let of_input = b.scale(x, 2.0).unwrap();
    let output = b.rms_norm(of_input, norm, 0.0).unwrap();
    let of_output = b.scale(output, 2.0).unwrap();
    let doubled = b.add(of_output, of_output).unwrap();
    let read_later = b.scale(doubled, 2.0).unwrap();
    let last = b.add(read_later, doubled).unwrap();
    b.output(output);
    b.output(last);
    let graph = b.finish().unwrap();
    let mapping = place(&mut allocator(Budget::Unbounded), &graph, &[w]).unwrap();
    let at = |id| buffer(&mapping, id).id;
    assert_ne!(at(of_input), at(x), "an input");
    assert_ne!(at(of_output), at(output), "an output");
    assert_ne!(at(doubled), at(of_output), "an operand that is also the second");
    assert_ne!(at(read_later), at(doubled), "a value that is read again");
    assert_eq!(at(last), at(read_later));
}

#[test]
fn a9_the_same_graph_gets_the_same_slots() {
    let setup = Setup::cpu(11);
    let mut alloc = allocator(Budget::Unbounded);
    alloc.commit(&setup.plan()).unwrap();
    let generation = alloc.backend(cpu()).pool_gen();
    let scheduler = setup.plan().scheduler().clone();
    let graphs = setup.graphs();
    let mut map = |graph: &ComputeGraph| {
        let assignment = scheduler.assign_backends(&alloc, graph).unwrap();
        alloc.alloc_graph(graph, &assignment).unwrap()
    };
    let first: Vec<Mapping> = graphs.iter().map(&mut map).collect();
    for (graph, first) in graphs.iter().zip(&first).rev() {
        assert_eq!(&map(graph), first);
    }
    assert_eq!(alloc.backend(cpu()).pool_gen(), generation);
}

#[test]
fn a9_a_captured_segment_notices_a_freed_buffer() {
    let mut b = GraphBuilder::new();
    let x = input(&mut b, "x", 1);
    let y = b.scale(x, 2.0).unwrap();
    b.output(y);
    let graph = b.finish().unwrap();
    let mut fake = FakeBackend::new(FakeSpec::cpu());
    let mut slot = || {
        let id = fake.alloc_buffer(BufKind::Pool, Bytes::new(256)).unwrap();
        BufRef { backend: cpu(), id, offset: Bytes::ZERO, len: Bytes::new(64) }
    };
    let (from, to) = (slot(), slot());
    let bindings = [Some(Binding::Buffer(from)), Some(Binding::Buffer(to))];
    let segment = Segment { graph: &graph, nodes: &[y], bindings: &bindings, scratch: None };
    let captured = fake.prepare(segment).unwrap();
    let counts = BatchCounts { tokens: 1, outputs: 0 };
    fake.execute(captured, counts, &CancelFlag::new()).unwrap();
    fake.free_buffer(from.id);
    fake.alloc_buffer(BufKind::Pool, Bytes::new(256)).unwrap();
    fake.execute(captured, counts, &CancelFlag::new()).unwrap_err();
}

#[test]
fn a10_a_switch_back_builds_nothing() {
    let setup = Setup::cpu(2);
    let (mut runner, _) = setup.start();
    let mut random = Rng::new(0);
    let shapes: Vec<Rung> = rungs(BATCH).collect();
    for _ in 0..3 {
        for &rung in &shapes {
            let counts = BatchCounts { tokens: rung.tokens, outputs: rung.outputs };
            run(&mut runner, &setup, &Batch::new(&mut random, rung, counts, 0));
        }
    }
    let stats = CacheStats { builds: shapes.len() as u64, reuses: 2 * shapes.len() as u64 };
    assert_eq!(runner.stats(), stats);
}

#[test]
fn a10_a_failed_build_leaves_the_cache_usable() {
    let setup = Setup::cpu(2);
    let (mut runner, _) = setup.start();
    let rung = Rung { tokens: 1, outputs: 1 };
    let counts = BatchCounts { tokens: 1, outputs: 1 };
    let batch = Batch::new(&mut Rng::new(0), rung, counts, 0);
    let first = run(&mut runner, &setup, &batch);
    let broken = || Err(GraphError::Parameter { op: "rope", what: "broken".to_owned() });
    let other = setup.params(Rung { tokens: 8, outputs: 1 });
    runner.run(&other, broken, &[], counts, &CancelFlag::new()).unwrap_err();
    assert!(matches!(runner.read_output(0, &mut []), Err(Error::Output { .. })));
    assert_eq!(run(&mut runner, &setup, &batch), first);
}

#[test]
fn a11_staging_is_exact_at_the_largest_rung_and_part_of_the_pool() {
    let (setup, plan) = (0..)
        .map(|seed| Setup::split(seed, 1))
        .map(|setup| {
            let plan = setup.plan();
            (setup, plan)
        })
        .find(|(_, plan)| plan.backends().iter().all(|p| !p.staging.is_empty()))
        .unwrap();
    let (runner, _) = setup.start();
    for (id, planned) in runner.allocator().ids().zip(plan.backends()) {
        let row = 32 * 4;
        for &bytes in &planned.staging {
            assert_eq!(bytes, Bytes::new(BATCH as u64 * row), "a value of the largest rung, not its class");
        }
        let report = runner.memory_report(id);
        assert_eq!(report.staging_bytes, planned.staging.iter().copied().sum());
        let classes = report.reserved_classes.iter().map(|&(class, n)| Bytes::new(class.get() * n as u64));
        assert_eq!(report.pool_bytes, classes.chain([report.staging_bytes]).sum());
        assert_eq!(report.pool_bytes, runner.allocator().backend(id).pool_len());
    }
    assert_eq!(plan.backends()[1].host, Bytes::new(BATCH as u64 * 32 * 4));
}

#[test]
fn a11_smaller_rungs_use_a_part_of_the_same_buffer() {
    let setup = Setup::split(4, 1);
    let (backends, _) = setup.backends();
    let mut alloc = GraphAllocator::new(backends.into_iter().map(|b| (b, Budget::Unbounded)).collect());
    alloc.commit(&setup.plan()).unwrap();
    let scheduler = setup.plan().scheduler().clone();
    let mut crossings = |tokens| {
        let graph = setup.model.graph(Rung { tokens, outputs: 1 });
        let assignment = scheduler.assign_backends(&alloc, &graph).unwrap();
        alloc.alloc_graph(&graph, &assignment).unwrap().crossings().to_vec()
    };
    let (small, large) = (crossings(1), crossings(BATCH));
    assert!(!small.is_empty());
    assert_eq!(small.len(), large.len());
    for (small, large) in small.iter().zip(&large) {
        assert_eq!((small.to.backend, small.to.id), (large.to.backend, large.to.id));
        assert_eq!(small.to.len.get() * BATCH as u64, large.to.len.get());
    }
}

#[test]
fn b1_a_driver_that_refuses_leaves_no_charge() {
    let backend = FakeBackend::new(FakeSpec::cpu());
    let probe = backend.probe();
    let mut alloc = GraphAllocator::new(vec![(Box::new(backend), Budget::Unbounded)]);
    probe.grants.store(1, Ordering::Relaxed);
    alloc.alloc_in_pool(cpu(), Bytes::new(1)).unwrap();
    let refused = alloc.alloc_in_pool(cpu(), Bytes::new(1)).unwrap_err();
    assert!(matches!(refused, Error::Backend(BackendError::OutOfMemory { .. })), "{refused}");
    assert_eq!(alloc.memory_report(cpu()).pool_bytes, Bytes::new(256));
}

#[test]
fn b1_a_budget_of_one_byte_refuses_before_anything_is_allocated() {
    for backend in 0..2 {
        let mut setup = Setup::split(7, 1);
        setup.budgets[backend] = limited(1);
        let (backends, probes) = setup.backends();
        let refused = Runner::new(backends, setup.plan()).unwrap_err();
        assert!(matches!(refused, Error::Budget(_)), "{refused}");
        assert!(probes.iter().all(|probe| Probe::count(&probe.created) == 0));
    }
}

/// Two tables of embeddings, added, planned for a CPU.
fn plan_of_tables(rows: [usize; 2], mapped: bool) -> Result<MemoryPlan> {
    let weights = [decl("a", rows[0]), decl("b", rows[1])];
    let mut b = GraphBuilder::new();
    let ids = b.input("tokens", DType::I32, Shape::new(1, 1), Rows::PerToken(1)).unwrap();
    let tables = [0, 1].map(|i| b.weight(WeightId::new(i), &weights[i]).unwrap());
    let [x, y] = tables.map(|table| b.get_rows(table, ids).unwrap());
    let sum = b.add(x, y).unwrap();
    b.output(sum);
    MemoryPlan::resolve(&PlanRequest {
        backends: &[(Arc::new(FakeSpec::cpu()), Budget::Unbounded)],
        offload: OffloadPlan::cpu_only(0),
        weights: &weights,
        mapped: &[mapped; 2],
        host: Bytes::ZERO,
        states: &[],
        graphs: &[b.finish().unwrap()],
    })
}

#[test]
fn b2_a_graph_outside_the_plan_is_refused_and_leaves_no_trace() {
    let setup = Setup::cpu(2);
    let (mut runner, probes) = setup.start();
    let report = runner.memory_report(cpu());
    let rung = Rung { tokens: 10 * BATCH, outputs: 1 };
    let counts = BatchCounts { tokens: 1, outputs: 1 };
    let unplanned = Batch::new(&mut Rng::new(0), rung, counts, 0);
    let graph = setup.model.graph(rung);
    let refused = runner
        .run(&setup.params(rung), || Ok(graph), &unplanned.fill(), counts, &CancelFlag::new())
        .unwrap_err();
    assert!(matches!(refused, Error::Unplanned { .. }), "{refused}");
    let after = runner.memory_report(cpu());
    assert_eq!(MemoryReport { peak_live_bytes: report.peak_live_bytes, ..after }, report);
    let created = Probe::count(&probes[0].created);
    let rung = Rung { tokens: 1, outputs: 1 };
    run(&mut runner, &setup, &Batch::new(&mut Rng::new(0), rung, counts, 0));
    assert_eq!(Probe::count(&probes[0].created), created);
}

#[test]
fn b2_a_plan_beyond_64_bits_is_refused() {
    let most = usize::MAX / 64;
    for mapped in [false, true] {
        let overflow = plan_of_tables([most, most], mapped).unwrap_err();
        assert_eq!(overflow.to_string(), "the weights: the size in bytes exceeds 64 bits");
        // The weights alone have a size; with the pool they have none.
        assert_eq!(plan_of_tables([most, 0], mapped).unwrap().admit().unwrap_err().budget, Bytes::MAX);
        plan_of_tables([most - 100, 0], mapped).unwrap().admit().unwrap();
    }
}

#[test]
fn b6_a_device_that_is_lost_ends_the_run_and_leaves_nothing_to_read() {
    let setup = Setup::split(4, 1);
    let (mut runner, probes) = setup.start();
    let rung = Rung { tokens: 1, outputs: 1 };
    let counts = BatchCounts { tokens: 1, outputs: 1 };
    let batch = Batch::new(&mut Rng::new(0), rung, counts, 0);
    run(&mut runner, &setup, &batch);
    probes[0].runs.store(0, Ordering::Relaxed);
    let lost = runner
        .run(&setup.params(rung), || unreachable!(), &batch.fill(), counts, &CancelFlag::new())
        .unwrap_err();
    assert_eq!(lost.to_string(), "fake: the device is lost");
    assert_eq!(runner.read_output(0, &mut [0; 4]), Err(Error::Output { index: 0, count: 0 }));
}

#[test]
fn o5_the_device_is_never_offered_a_block_past_the_plan() {
    for gpu_layers in 0..=3 {
        let setup = Setup::split(1, gpu_layers);
        let (backends, _) = setup.backends();
        let alloc = GraphAllocator::new(backends.into_iter().map(|b| (b, Budget::Unbounded)).collect());
        let graph = setup.model.graph(Rung { tokens: 8, outputs: 1 });
        let assignment = setup.plan().scheduler().assign_backends(&alloc, &graph).unwrap();
        for span in assignment.spans().iter().filter(|span| span.backend != alloc.cpu()) {
            for &id in &span.nodes {
                assert!(
                    setup.offload().allows_layer(graph.node(id).layer),
                    "{id} of {:?}",
                    graph.node(id).layer
                );
            }
        }
        for (index, decl) in setup.model.weights.iter().enumerate() {
            let homes: Vec<_> = setup.plan().weight_homes(WeightId::new(index)).collect();
            let device = homes.contains(&BackendId::new(0));
            assert!(!device || setup.offload().allows_weight(&decl.name), "{}", decl.name);
        }
    }
}

#[test]
fn o5_an_operation_without_a_kernel_on_the_device_takes_its_states_to_the_cpu() {
    for seed in 0..20 {
        let mut setup = Setup::split(seed, 4);
        setup.specs[0].unsupported = vec!["attention"];
        let plan = setup.plan();
        for state in 0..setup.model.states.len() {
            assert_eq!(plan.scheduler().state_home(StateId::new(state)), BackendId::new(1));
        }
        let (mut runner, _) = setup.start();
        let batch = Batch::random(&mut Rng::new(seed), 0);
        let graph = setup.model.graph(batch.rung);
        let expected = setup.reference().run(&graph, &batch.fill(), batch.counts);
        assert_eq!(run(&mut runner, &setup, &batch), expected);
    }
}

#[test]
fn a_run_refuses_what_does_not_fit_its_graph() {
    let setup = Setup::cpu(2);
    let (backends, _) = setup.backends();
    let mut runner = Runner::new(backends, setup.plan()).unwrap();
    let rung = Rung { tokens: 8, outputs: 1 };
    let counts = BatchCounts { tokens: 8, outputs: 1 };
    let batch = Batch::new(&mut Rng::new(0), rung, counts, 0);
    let mut attempt = |fill: &[(&str, &[u8])], counts| {
        let graph = setup.model.graph(rung);
        runner
            .run(&setup.params(rung), || Ok(graph), fill, counts, &CancelFlag::new())
            .map_err(|error| error.to_string())
    };
    let unregistered = attempt(&batch.fill(), counts).unwrap_err();
    assert!(unregistered.contains("not registered"), "{unregistered}");
    let too_many = attempt(&batch.fill(), BatchCounts { tokens: 9, outputs: 1 });
    assert_eq!(too_many.unwrap_err(), "tokens: 9 do not fit a graph of 8");
    for (index, decl) in setup.model.weights.iter().enumerate() {
        runner.register_weight(WeightId::new(index), &weight_data(decl, true)).unwrap();
    }
    let twice = runner.register_weight(WeightId::new(0), &weight_data(&setup.model.weights[0], true));
    assert_eq!(twice.unwrap_err().to_string(), "weight w0: registered already");
    let mut attempt = |fill: &[(&str, &[u8])]| {
        let graph = setup.model.graph(rung);
        runner
            .run(&setup.params(rung), || Ok(graph), fill, counts, &CancelFlag::new())
            .map_err(|error| error.to_string())
    };
    assert_eq!(attempt(&batch.fill()[1..]).unwrap_err(), "input \"tokens\": not filled");
    let mut fill = batch.fill();
    fill.push(("x\n", &[]));
    assert_eq!(attempt(&fill).unwrap_err(), "input \"x\\n\": the graph has no such input");
    attempt(&batch.fill()).unwrap();
}
