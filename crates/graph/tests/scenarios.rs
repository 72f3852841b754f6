//! Scenarios of the memory policy that became bugs elsewhere, on backends with scripted answers.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

mod common;

use std::sync::atomic::Ordering;

use common::*;
use minfer_graph::*;
use minfer_tensor::{Bytes, DType};
use minfer_testkit::fake::{FakeBackend, FakeSpec, Probe, weight_data};
use minfer_testkit::rng::Rng;

/// The fit fails, the load goes on, memory is out later: here a plan that doesn't fit creates nothing, and a device that
/// breaks its word ends the load before a weight is read.
#[test]
fn s1_a_failed_plan_reads_no_weight() {
    let mut setup = Setup::cpu(3);
    let needed = setup.plan().backends()[0].charges().total();
    setup.budgets = vec![Budget::Limited(needed.saturating_sub(Bytes::new(1)))];
    let (backends, probes) = setup.backends();
    assert!(matches!(Runner::new(backends, setup.plan()), Err(Error::Budget(_))));
    assert_eq!(Probe::count(&probes[0].created), 0);

    setup.budgets = vec![Budget::Limited(needed)];
    let (backends, probes) = setup.backends();
    probes[0].grants.store(2, Ordering::Relaxed);
    let refused = Runner::new(backends, setup.plan()).unwrap_err();
    assert!(matches!(refused, Error::Backend(BackendError::OutOfMemory { .. })), "{refused}");
}

/// The second conversation on a device is charged to the account of the first.
#[test]
fn s8_two_contexts_share_one_ledger() {
    let cpu = BackendId::new(0);
    let keys = |name: &str| StateDecl {
        name: name.to_owned(),
        layer: 0,
        dtype: DType::F32,
        shape: Shape::new(64, 16),
        keys: true,
    };
    let one = keys("first").nbytes().unwrap();
    let budget = Budget::Limited(Bytes::new(2 * one.get() - 1));
    let mut alloc = GraphAllocator::new(vec![(Box::new(FakeBackend::new(FakeSpec::cpu())), budget)]);
    alloc.create_state(cpu, StateId::new(0), &keys("first")).unwrap();
    let refused = alloc.create_state(cpu, StateId::new(1), &keys("second")).unwrap_err();
    assert!(matches!(&refused, Error::Budget(e) if e.pooled == one && e.request == one), "{refused}");
    assert_eq!(alloc.memory_report(cpu).kv_bytes, one);
}

/// What a conversation holds doesn't grow from turn to turn: not the scratch, not anything.
#[test]
fn s9_nothing_grows_from_turn_to_turn() {
    let setup = Setup::split(5, 1);
    let (mut runner, _) = setup.start();
    let ids: Vec<_> = runner.allocator().ids().collect();
    let held = |runner: &Runner| ids.iter().map(|&id| measured(runner, id)).collect::<Vec<_>>();
    let before = held(&runner);
    let mut random = Rng::new(1);
    for turn in 0..20 {
        run(&mut runner, &setup, &Batch::random(&mut random, turn));
        assert_eq!(held(&runner), before, "turn {turn}");
    }
}

/// The report is what the backend says, and the backend says what it was charged.
#[test]
fn b4_charged_is_measured_in_every_category() {
    for setup in [Setup::cpu(8), Setup::split(8, 1), Setup::split(9, 99)] {
        let (runner, _) = setup.start();
        for id in runner.allocator().ids() {
            let (report, charged) = (runner.memory_report(id), runner.allocator().charged(id));
            assert!(report.agrees_with(&charged), "{report:?} {charged:?}");
            let [weights, kv, pool, scratch] = measured(&runner, id);
            let reported = [report.weights_bytes, report.kv_bytes, report.pool_bytes, report.scratch_bytes];
            assert_eq!(reported, [weights, kv, pool, scratch]);
            assert_eq!(runner.plan().backends()[id.index()].charges(), charged);
        }
    }
    // The comparison isn't empty: a weight that the ledger doesn't know of shows.
    let mut alloc =
        GraphAllocator::new(vec![(Box::new(FakeBackend::new(FakeSpec::cpu())), Budget::Unbounded)]);
    let cpu = BackendId::new(0);
    let decl =
        WeightDecl { name: "w".to_owned(), dtype: DType::F32, shape: Shape::new(1, 16), multiplied: false };
    alloc.register_weight(cpu, WeightId::new(0), &decl, weight_data(&decl, true)).unwrap();
    assert!(!alloc.memory_report(cpu).agrees_with(&Charges::default()));
}
