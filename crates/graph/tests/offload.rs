//! One plan of blocks on a device, read by loader, builder and assignment.
#![allow(clippy::unwrap_used, reason = "tests panic")]

mod common;

use std::sync::atomic::Ordering;

use common::{Batch, Setup};
use minfer_graph::*;
use minfer_tensor::Bytes;
use minfer_testkit::fake::{FakeSpec, Probe, weight_data};
use minfer_testkit::rng::Rng;
use proptest::prelude::*;

fn decode() -> (Rung, BatchCounts) {
    (Rung { tokens: 1, outputs: 1 }, BatchCounts { tokens: 1, outputs: 1 })
}

/// A setup with at least two blocks, `gpu_layers` of them on the device.
fn split(gpu_layers: u32) -> Setup {
    let seed = (0..).find(|&seed| Setup::cpu(seed).model.n_layers > 1).unwrap();
    Setup::split(seed, gpu_layers)
}

#[test]
fn o3_a_weight_that_the_loader_left_out_is_noticed() {
    let setup = split(1);
    let (backends, _) = setup.backends();
    let mut runner = Runner::new(backends, setup.plan()).unwrap();
    let on_device = |decl: &WeightDecl| setup.offload().allows_weight(&decl.name);
    let left_out = setup.model.weights.iter().position(on_device).unwrap();
    for (index, decl) in setup.model.weights.iter().enumerate().filter(|(index, _)| *index != left_out) {
        runner.register_weight(WeightId::new(index), &weight_data(decl, true)).unwrap();
    }
    assert!(matches!(runner.verify_weights(), Err(Error::Weight { id, .. }) if id.index() == left_out));
    let decl = &setup.model.weights[left_out];
    runner.register_weight(WeightId::new(left_out), &weight_data(decl, true)).unwrap();
    runner.verify_weights().unwrap();
}

#[test]
fn o4_a_graph_for_another_plan_is_refused() {
    let setup = split(1);
    let (mut runner, _) = setup.start();
    let (rung, counts) = decode();
    let batch = Batch::new(&mut Rng::new(1), rung, counts, 0);
    let mut params = setup.params(rung);
    for gpu_layers in [0, 2] {
        params.cparams.gpu_layers = gpu_layers;
        let build = || Ok(setup.model.graph(rung));
        let run = runner.run(&params, build, &batch.fill(), counts, &CancelFlag::default());
        assert_eq!(run, Err(Error::Offload { expected: 1, found: gpu_layers }));
    }
}

#[test]
fn o5_an_assignment_for_another_plan_finds_no_memory() {
    let (one, two) = (split(1), split(2));
    let (backends, _) = one.backends();
    let mut alloc = GraphAllocator::new(backends.into_iter().map(|b| (b, Budget::Unbounded)).collect());
    alloc.commit(&one.plan()).unwrap();
    let graph = one.model.graph(decode().0);
    let other = two.plan().scheduler().assign_backends(&alloc, &graph).unwrap();
    let placed = alloc.alloc_graph(&graph, &other);
    assert!(matches!(placed, Err(Error::State { .. } | Error::Unplanned { .. })), "{placed:?}");
}

#[test]
fn o7_the_gate_charges_what_the_fit_counts() {
    for seed in 0..8 {
        let whole = Setup::split(seed, u32::MAX);
        let n_layers = whole.model.n_layers;
        let spec = FakeSpec::device();
        let weights = whole.model.weights.iter();
        let weights = weights.map(|decl| (decl.name.as_str(), spec.weight_bytes(decl, true).total()));
        let blocks = per_block_bytes(n_layers, weights).unwrap();
        for gpu_layers in 0..=n_layers {
            let charged = Setup::split(seed, gpu_layers).plan().backends()[0].weights.total();
            let counted: Bytes = blocks[..gpu_layers as usize].iter().copied().sum();
            assert_eq!(charged, counted, "{gpu_layers} of {n_layers}, seed {seed}");
        }
    }
}

#[test]
fn o5_blocks_with_an_operation_that_the_device_lacks_are_not_supported() {
    let setup = split(0);
    let graph = setup.model.graph(decode().0);
    let n_layers = setup.model.n_layers;
    assert_eq!(supported_blocks(&FakeSpec::device(), &graph, n_layers), n_layers);
    for block in 0..n_layers {
        let first_of =
            |name: &str| graph.nodes().iter().filter(|n| n.op.name() == name).find_map(|n| n.layer);
        let there = |node: &&CNode| node.op.has_work() && node.layer == Some(block);
        let op = graph.nodes().iter().find(there).unwrap().op.name();
        let lacking = FakeSpec { unsupported: vec![op], ..FakeSpec::device() };
        assert_eq!(supported_blocks(&lacking, &graph, n_layers), first_of(op).unwrap(), "without {op}");
    }
}

#[test]
fn b1_what_a_device_takes_for_itself_is_charged_where_it_runs_something() {
    let fixed = |gpu_layers| {
        let setup = split(gpu_layers);
        let (runner, _) = setup.start();
        let report = runner.memory_report(BackendId::new(0));
        assert_eq!(report.total_bytes(), setup.plan().backends()[0].charges().total());
        report.scratch_bytes
    };
    assert_eq!(fixed(0), Bytes::ZERO);
    assert!(fixed(1) >= Bytes::new(FakeSpec::device().fixed));
}

#[test]
fn b2_a_buffer_beyond_what_the_device_holds_in_one_piece_is_refused_by_the_plan() {
    let mut setup = split(1);
    setup.specs[0].max_buffer = 16;
    let backends: Vec<_> = setup.specs.iter().map(|spec| (spec_of(spec), Budget::Unbounded)).collect();
    let request = PlanRequest {
        backends: &backends,
        offload: setup.offload(),
        weights: &setup.model.weights,
        mapped: &vec![true; setup.model.weights.len()],
        host: Bytes::ZERO,
        states: &setup.model.states,
        graphs: &setup.graphs(),
    };
    let error = MemoryPlan::resolve(&request).unwrap_err();
    assert!(matches!(error, Error::TooLarge { max, .. } if max == Bytes::new(16)), "{error}");
}

fn spec_of(spec: &FakeSpec) -> std::sync::Arc<dyn DeviceSpec> {
    std::sync::Arc::new(spec.clone())
}

#[test]
fn b5_device_and_host_together_fit_a_host_that_is_both() {
    let mut setup = split(1);
    setup.specs[0].unified = true;
    let plan = setup.plan();
    let sum: u64 = plan.backends().iter().map(|backend| backend.charges().total().get()).sum();
    setup.budgets[1] = Budget::Limited(Bytes::new(sum));
    setup.plan().admit().unwrap();
    setup.budgets[1] = Budget::Limited(Bytes::new(sum - 1));
    assert_eq!(setup.plan().admit().unwrap_err().backend, "cpu");
    setup.specs[0].unified = false;
    setup.plan().admit().unwrap();
}

#[test]
fn b6_a_device_that_admits_an_allocation_and_fails_later_ends_the_run() {
    let setup = split(1);
    let (mut runner, probes) = setup.start();
    let (rung, counts) = decode();
    let batch = Batch::new(&mut Rng::new(3), rung, counts, 0);
    probes[0].runs.store(0, Ordering::Relaxed);
    let build = || Ok(setup.model.graph(rung));
    let run = runner.run(&setup.params(rung), build, &batch.fill(), counts, &CancelFlag::default());
    assert!(matches!(run, Err(Error::Backend(BackendError::Device { backend, .. })) if backend == "fake"));
    assert!(runner.read_output(0, &mut [0; 4]).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn b2_one_byte_less_than_the_plan_is_refused_up_front(seed: u64, gpu_layers in 0u32..4, on_device: bool) {
        let mut setup = Setup::split(seed, gpu_layers);
        let index = usize::from(!on_device);
        let need = setup.plan().backends()[index].charges().total();
        setup.budgets[index] = Budget::Limited(need);
        setup.plan().admit().unwrap();
        let (runner, _) = setup.start();
        runner.verify_weights().unwrap();
        prop_assert_eq!(runner.memory_report(BackendId::new(index)).total_bytes(), need);
        if need > Bytes::ZERO {
            setup.budgets[index] = Budget::Limited(need.saturating_sub(Bytes::new(1)));
            let (backends, probes) = setup.backends();
            prop_assert!(matches!(Runner::new(backends, setup.plan()), Err(Error::Budget(_))));
            prop_assert!(probes.iter().all(|probe| Probe::count(&probe.created) == 0));
        }
    }
}
