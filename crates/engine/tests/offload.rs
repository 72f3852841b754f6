//! Blocks on a device: a second CPU backend under another name, with its own account and scripted failures.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod common;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use common::{ARCHS, TestMachine, arch, host, options, score};
use minfer_backend_cpu::CpuSpec;
use minfer_engine::{CancelFlag, Error, ErrorKind, ModelFile, Options, Plan, Reserve, Setting, plan};
use minfer_graph::DeviceMemory;
use minfer_tensor::Bytes;
use minfer_testkit::scripted::{DEVICE, ScriptedSpec};

const IDS: [u32; 9] = [1, 5, 9, 2, 7, 30, 4, 11, 3];

fn reported(free: u64) -> DeviceMemory {
    DeviceMemory::Reported { free: Bytes::new(free), total: Bytes::new(1 << 40) }
}

fn roomy() -> TestMachine {
    TestMachine::new(1).with_device(reported(1 << 40))
}

fn layers(n: &(impl ToString + ?Sized)) -> Options {
    Options { gpu_layers: Some(Setting::new(n.to_string(), "--gpu-layers")), ..options(8) }
}

fn planned(machine: &TestMachine, name: &str, options: &Options) -> Plan {
    plan(&ModelFile::open(&arch(name)).unwrap(), options, &machine.host()).unwrap()
}

/// The bytes of every category: the whole of what was planned and of what is held.
fn categories(plan: &Plan) -> Vec<[u64; 6]> {
    let of = |b: &minfer_engine::BackendMemory| {
        [b.weights_bytes, b.kv_bytes, b.pool_bytes, b.staging_bytes, b.scratch_bytes, b.mapped_bytes]
    };
    plan.backends.iter().map(of).collect()
}

#[test]
fn o1_any_number_of_blocks_gives_the_same_logits_and_the_planned_bytes() {
    for name in ARCHS {
        let mut on_cpu = TestMachine::new(1).load(&arch(name), &options(8)).unwrap();
        let (_, expected) = score(&mut on_cpu, &IDS, 4);
        let n_layers = on_cpu.plan().offload.n_layers;
        for k in 0..=n_layers {
            let machine = roomy();
            let before = planned(&machine, name, &layers(&k));
            let mut engine = machine.load(&arch(name), &layers(&k)).unwrap();
            let (_, found) = score(&mut engine, &IDS, 4);
            assert_eq!(found, expected, "{name}, {k} of {n_layers}");
            let after = engine.memory_report();
            assert_eq!(categories(&before), categories(&after), "{name}, {k} of {n_layers}");
            let blocks: u64 = before.blocks[..k].iter().map(|block| block.weights_bytes).sum();
            let (held, full) = (after.backends[0].weights_bytes, k == n_layers);
            assert!(
                if full { held > blocks } else { held == blocks },
                "{name}: {held} held, {blocks} in the blocks, {k} of {n_layers}"
            );
            assert_eq!(after.offload.unblocked_on_device, full);
            assert!(before.blocks.iter().enumerate().all(|(i, b)| (b.backend == DEVICE) == (i < k)));
            assert_eq!(engine.offload_report().is_some(), k > 0);
        }
    }
}

#[test]
fn o2_the_request_is_resolved_and_its_source_is_told() {
    let machine = roomy();
    let of = |options: &Options| planned(&machine, "llama-dense", options).offload;
    let n_layers = of(&options(8)).n_layers;
    assert_eq!(of(&options(8)).gpu_layers, n_layers, "unset takes every block");
    assert_eq!(of(&layers("all")).gpu_layers, n_layers);
    assert_eq!(of(&layers("")).gpu_layers, n_layers);
    let clamped = of(&layers(&99));
    assert_eq!(clamped.gpu_layers, n_layers);
    assert!(clamped.note.unwrap().contains("99 blocks were asked for"));
    for bad in ["-1", "4.5", "12abc", "banana"] {
        let file = ModelFile::open(&arch("llama-dense")).unwrap();
        let error = plan(&file, &layers(bad), &machine.host()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused);
        assert!(error.to_string().contains(bad) && error.to_string().contains("--gpu-layers"), "{error}");
    }
    let engine = machine.load(&arch("llama-dense"), &layers(&1)).unwrap();
    let report = engine.offload_report().unwrap();
    assert!(report.contains("scripted device") && report.contains("--gpu-layers 1"), "{report}");
}

#[test]
fn o2_without_a_device_a_number_runs_on_the_cpu_with_a_reason() {
    let file = ModelFile::open(&arch("llama-dense")).unwrap();
    let of = |options: &Options| plan(&file, options, &host(1)).unwrap().offload;
    for (asked, told) in [("", false), ("auto", false), ("0", false), ("2", true), ("all", true)] {
        let offload = of(&layers(asked));
        assert_eq!((offload.gpu_layers, offload.note.is_some()), (0, told), "{asked:?}");
    }
}

#[test]
fn o2_all_blocks_over_the_budget_are_refused_and_fewer_proposed() {
    let machine = roomy();
    let needed = planned(&machine, "llama-dense", &options(8)).backends[0].total_bytes;
    let tight = TestMachine::new(1).with_device(reported(needed));
    let plan = planned(&tight, "llama-dense", &options(8));
    let refusal = plan.refusal.unwrap();
    assert_eq!(refusal.backend, DEVICE);
    assert!(plan.alternatives.iter().any(|other| other.argv == ["--gpu-layers", "auto"]));
    for other in &plan.alternatives {
        assert!(other.argv[0] != "--cpu-mem", "the host has room");
        let n = other.argv[1].as_str();
        let changed = match other.argv[0].as_str() {
            "--gpu-layers" => layers(n),
            "--ctx" => Options { ctx: Some(n.parse().unwrap()), ..options(8) },
            "--batch" => Options { batch: n.parse().unwrap(), ..options(8) },
            "--gpu-mem" => Options { gpu_mem: Some(Setting::new(n, "--gpu-mem")), ..options(8) },
            "--kv-type" => continue,
            flag => panic!("{flag}"),
        };
        let taken = tight.load(&arch("llama-dense"), &changed).unwrap();
        assert_eq!(taken.plan().offload.gpu_layers, other.gpu_layers, "{:?}", other.argv);
    }
}

#[test]
fn o6_a_device_that_cannot_have_the_weights_is_left_for_the_cpu() {
    let all = roomy();
    let mut expected = TestMachine::new(1).load(&arch("llama-dense"), &options(8)).unwrap();
    let (_, expected) = score(&mut expected, &IDS, 4);
    for left in [0, 1, 5] {
        all.device_grants.weights.store(left, Ordering::Relaxed);
        let mut engine = all.load(&arch("llama-dense"), &layers("all")).unwrap();
        let plan = engine.plan();
        assert_eq!((plan.offload.gpu_layers, plan.backends.len()), (0, 1));
        assert!(plan.notes.iter().any(|note| note.contains(DEVICE) && note.contains("running on the CPU")));
        assert_eq!(engine.offload_report(), None);
        assert_eq!(score(&mut engine, &IDS, 4).1, expected);
    }
    all.device_grants.weights.store(usize::MAX, Ordering::Relaxed);
    all.device_grants.buffers.store(3, Ordering::Relaxed);
    let mut engine = all.load(&arch("llama-dense"), &layers("all")).unwrap();
    assert_eq!(engine.plan().backends.len(), 1, "nor a device without memory for its buffers");
    assert_eq!(score(&mut engine, &IDS, 4).1, expected);
    all.device_grants.buffers.store(0, Ordering::Relaxed);
    // What the CPU has no room for either is refused.
    let tight = Options { cpu_mem: Some(Setting::new("0", "--cpu-mem")), ..layers("all") };
    assert_eq!(all.load(&arch("llama-dense"), &tight).unwrap_err().kind(), ErrorKind::Refused);
}

/// Blocks that an automatic fit takes under a budget of the device, after running to the end of the context.
fn auto(name: &str, free: u64, reserve: Reserve) -> usize {
    let machine = TestMachine::new(1).with_device(reported(free));
    let mut engine =
        machine.load(&arch(name), &Options { reserve, ctx: Some(16), ..layers("auto") }).unwrap();
    let ids: Vec<u32> = (0..16).map(|i| IDS[i % IDS.len()]).collect();
    score(&mut engine, &ids, 1);
    let device = &engine.memory_report().backends[0];
    assert!(device.total_bytes <= device.budget_bytes.unwrap(), "{name}: {free}");
    let quarter = device.budget_bytes.unwrap().div_ceil(4);
    let weights = device.weights_bytes;
    assert!(reserve == Reserve::Exact || weights == 0 || weights + quarter <= device.budget_bytes.unwrap());
    engine.plan().offload.gpu_layers
}

#[test]
fn o7_the_automatic_fit_grows_with_the_budget_and_is_never_refused_later() {
    let name = "llama-dense";
    let machine = roomy();
    let shape = |k: usize| Options { ctx: Some(16), ..layers(&k) };
    let n_layers = planned(&machine, name, &shape(0)).offload.n_layers;
    let needs: Vec<u64> =
        (0..=n_layers).map(|k| planned(&machine, name, &shape(k)).backends[0].total_bytes).collect();
    let top = needs[n_layers] * 2;
    for reserve in [Reserve::Quarter, Reserve::Exact] {
        let mut last = 0;
        for free in (0..=40).map(|i| top * i / 40) {
            let k = auto(name, free, reserve);
            assert!(k >= last, "{k} blocks after {last}, {free} bytes free");
            last = k;
            let budget = free - free.div_ceil(4);
            let brute = (0..=n_layers).rev().find(|&k| needs[k] <= budget).unwrap_or(0);
            assert!(k <= brute && (reserve == Reserve::Quarter || k + 1 >= brute), "{k} of {brute}, {free}");
        }
        assert_eq!(last, n_layers, "{reserve:?}");
    }
}

#[test]
fn b2_the_other_reserve_is_told() {
    let machine = roomy();
    let all = planned(&machine, "llama-dense", &layers("all"));
    // Three quarters of this hold the plan to the byte, but no quarter beside it.
    let free = all.backends[0].total_bytes * 4 / 3 + 4;
    let tight = TestMachine::new(1).with_device(reported(free));
    let exact = planned(&tight, "llama-dense", &Options { reserve: Reserve::Exact, ..layers("auto") });
    assert_eq!(exact.offload.gpu_layers, exact.offload.n_layers);
    let quarter = planned(&tight, "llama-dense", &layers("auto"));
    let note = quarter.offload.note.unwrap_or_default();
    let fewer = quarter.offload.gpu_layers < exact.offload.gpu_layers;
    assert_eq!(note.contains("--gpu-reserve exact would give"), fewer, "{note}");
}

#[test]
fn o8_a_failed_query_refuses_the_automatic_fit_and_nothing_else() {
    let failed = DeviceMemory::QueryFailed { name: "ERROR_DEVICE_BUSY".to_owned() };
    let machine = TestMachine::new(1).with_device(failed);
    let file = || ModelFile::open(&arch("llama-dense")).unwrap();
    let error = plan(&file(), &layers("auto"), &machine.host()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(error.to_string().contains("ERROR_DEVICE_BUSY") && error.to_string().contains("--gpu-mem"));
    let given = Options { gpu_mem: Some(Setting::new("64", "--gpu-mem")), ..layers("auto") };
    assert!(plan(&file(), &given, &machine.host()).unwrap().offload.gpu_layers > 0);
    let all = planned(&machine, "llama-dense", &options(8));
    assert_eq!((all.offload.gpu_layers, all.fits), (all.offload.n_layers, true));
    assert!(all.notes.iter().any(|note| note.contains("ERROR_DEVICE_BUSY")));
    assert_eq!(all.backends[0].memory.outcome, "query_failed");
    assert!(all.backends[0].weights_bytes > 0, "charged all the same");
}

#[test]
fn b6_memory_that_shrinks_before_the_commit_is_planned_for_again_or_refused() {
    let needed = planned(&roomy(), "llama-dense", &layers("all")).backends[0].total_bytes;
    let enough = needed * 2;
    for (now, shrinks) in
        [(enough * 2, false), (enough, false), (enough - 1, false), (needed, true), (0, true)]
    {
        let machine = TestMachine::new(1).with_device(reported(enough));
        *machine.answers.borrow_mut() = vec![reported(now)];
        let refused = machine.load(&arch("llama-dense"), &layers("all"));
        assert_eq!(matches!(refused, Err(Error::Refused(_))), shrinks, "{now}");
        let auto = machine.load(&arch("llama-dense"), &Options { reserve: Reserve::Exact, ..layers("auto") });
        let plan = auto.unwrap().plan().clone();
        assert_eq!(plan.offload.gpu_layers < plan.offload.n_layers, shrinks, "{now}");
        assert_eq!(plan.notes.iter().any(|note| note.contains("planned again")), shrinks, "{:?}", plan.notes);
    }
    // A query that fails now changes nothing: the plan stands on an answer.
    let machine = TestMachine::new(1).with_device(reported(enough));
    *machine.answers.borrow_mut() = vec![DeviceMemory::QueryFailed { name: "LOST".to_owned() }];
    machine.load(&arch("llama-dense"), &layers("all")).unwrap();
}

#[test]
fn b6_a_lost_device_ends_the_request_with_its_name() {
    let machine = roomy();
    let mut engine = machine.load(&arch("llama-dense"), &layers(&1)).unwrap();
    score(&mut engine, &IDS, 1);
    machine.device_grants.runs.store(0, Ordering::Relaxed);
    let lost = engine.score(&IDS, 1, &CancelFlag::new(), &mut |_| {}).unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::Failed);
    assert!(lost.to_string().contains(DEVICE), "{lost}");
}

#[test]
fn b5_a_device_with_the_hosts_memory_and_the_host_fit_it_together() {
    let spec = || ScriptedSpec { unified: true, ..ScriptedSpec::new(Arc::new(CpuSpec::detect(1))) };
    let machine = || TestMachine::new(1).with_device_spec(spec(), reported(1 << 40));
    let free = planned(&machine(), "llama-dense", &layers(&1));
    let both: u64 = free.backends.iter().map(|b| b.total_bytes).sum();
    let with = |mib: u64, n: &str| Options {
        cpu_mem: Some(Setting::new(mib.to_string(), "--cpu-mem")),
        ..layers(n)
    };
    let fits = both.div_ceil(1 << 20);
    let tight = planned(&machine(), "llama-dense", &with(fits, "1"));
    assert!(tight.fits);
    assert_eq!(tight.backends[1].headroom_bytes, Some((fits << 20) - both));
    assert!(!planned(&machine(), "llama-dense", &with(fits - 1, "1")).fits);
    assert!(planned(&machine(), "llama-dense", &with(fits, "auto")).fits);
}

#[test]
fn o5_blocks_that_the_device_has_no_kernels_for_stay_on_the_cpu() {
    let spec = ScriptedSpec { unsupported: vec!["rope"], ..ScriptedSpec::new(Arc::new(CpuSpec::detect(1))) };
    let machine = TestMachine::new(1).with_device_spec(spec, reported(1 << 40));
    let plan = planned(&machine, "llama-dense", &layers("all"));
    assert_eq!((plan.offload.gpu_layers, plan.backends[0].total_bytes), (0, 0));
    assert!(plan.offload.note.unwrap().contains("no kernels for block 0"));
}
