//! Whole sessions on random models: what they compute and what they hold.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]

mod common;

use common::*;
use minfer_graph::*;
use minfer_tensor::Bytes;
use minfer_testkit::fake::Probe;
use minfer_testkit::rng::Rng;
use proptest::prelude::*;

/// CPU alone, and every split of a device and a CPU.
fn setups() -> impl Strategy<Value = Setup> {
    (any::<u64>(), 0..6u32).prop_map(|(seed, split)| match split {
        5 => Setup::cpu(seed),
        gpu_layers => Setup::split(seed, gpu_layers),
    })
}

/// From the node that makes a value to the last that reads it, on one backend, by another way than the allocator's: every
/// node is asked for everything that it reads.
fn lifetime(graph: &ComputeGraph, assignment: &Assignment, value: NodeId, on: BackendId) -> (usize, usize) {
    let is_input = matches!(graph.node(value).op, Op::Input(_));
    let birth = if is_input { 0 } else { value.index() };
    let home = !is_input && assignment.backend_of(value) == on;
    let reads = |id: NodeId| graph.node(id).inputs.iter().any(|&x| graph.storage_of(x) == value);
    let spans = assignment.spans();
    let readers = spans.iter().filter(|span| span.backend == on).flat_map(|span| &span.nodes);
    let mut death = readers.filter(|&&id| reads(id)).map(|id| id.index()).max().unwrap_or(birth);
    if graph.outputs().iter().any(|&output| graph.storage_of(output) == value) {
        death = usize::MAX;
    }
    let elsewhere = spans.iter().any(|span| span.backend != on && span.nodes.iter().any(|&id| reads(id)));
    if home && elsewhere {
        let span = spans.iter().find(|span| span.nodes.contains(&value)).unwrap();
        death = death.max(span.nodes.last().unwrap().index());
    }
    (birth, death)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// No two live values overlap, inputs survive until they are read, views and aliases extend lives, states persist,
    /// crossings arrive: hashes of everything agree with a run that shares no memory.
    #[test]
    fn a8_a_session_computes_what_a_run_without_sharing_computes(setup in setups(), seed: u64) {
        let (mut runner, _) = setup.start();
        let mut reference = setup.reference();
        let mut random = Rng::new(seed);
        let mut past = 0;
        for _ in 0..4 {
            let batch = Batch::random(&mut random, past);
            let expected = reference.run(&setup.model.graph(batch.rung), &batch.fill(), batch.counts);
            prop_assert_eq!(run(&mut runner, &setup, &batch), expected);
            past += batch.counts.tokens;
        }
    }

    /// Two values in one buffer are never needed at once, unless the younger is computed in place of the older.
    #[test]
    fn a8_no_two_live_values_share_a_buffer(setup in setups()) {
        let (backends, _) = setup.backends();
        let mut alloc = GraphAllocator::new(backends.into_iter().map(|b| (b, Budget::Unbounded)).collect());
        alloc.commit(&setup.plan()).unwrap();
        for graph in setup.graphs() {
            let assignment = setup.plan().scheduler().assign_backends(&alloc, &graph).unwrap();
            let mapping = alloc.alloc_graph(&graph, &assignment).unwrap();
            for on in alloc.ids() {
                let is_value = |&id: &NodeId| {
                    graph.storage_of(id) == id && !matches!(graph.node(id).op, Op::Weight(_) | Op::State(_))
                };
                let placed: Vec<_> = graph.ids().filter(is_value).filter_map(|id| {
                    let Some(Binding::Buffer(place)) = mapping.bindings(on)[id.index()] else { return None };
                    Some((id, place.id, lifetime(&graph, &assignment, id, on)))
                }).collect();
                for (n, &(older, slot, (_, death))) in placed.iter().enumerate() {
                    for &(younger, _, (birth, _)) in placed[n + 1..].iter().filter(|other| other.1 == slot) {
                        let first = graph.node(younger).inputs.first().map(|&x| graph.storage_of(x));
                        let in_place = birth == death && first == Some(older);
                        prop_assert!(birth > death || in_place, "{} and {} in {} on {}", older, younger, slot, on);
                    }
                }
            }
        }
    }

    /// The rung is topology, the number of tokens is data: any rung that holds a batch gives the same rows.
    #[test]
    fn b2_rows_beyond_the_tokens_change_no_result(setup in setups(), seed: u64) {
        let mut random = Rng::new(seed);
        let batch = Batch::random(&mut random, 0);
        let (mut runner, _) = setup.start();
        let expected = run(&mut runner, &setup, &batch);
        for rung in rungs(BATCH) {
            let BatchCounts { tokens, outputs } = batch.counts;
            let same_head = (rung.outputs == 0) == (batch.rung.outputs == 0);
            if rung.tokens >= tokens && rung.outputs >= outputs && same_head {
                let (mut fresh, _) = setup.start();
                prop_assert_eq!(&run(&mut fresh, &setup, &batch.at(rung)), &expected, "{:?}", rung);
            }
        }
    }

    /// Planned = charged = measured, and nothing is created, freed or refused after the commit.
    #[test]
    fn b2_a_committed_plan_is_all_that_is_ever_allocated(setup in setups(), seed: u64) {
        let (mut runner, probes) = setup.start();
        let counts = |probes: &[std::sync::Arc<Probe>]| {
            probes.iter().map(|p| (Probe::count(&p.created), Probe::count(&p.freed))).collect::<Vec<_>>()
        };
        let committed = counts(&probes);
        let mut random = Rng::new(seed);
        for _ in 0..6 {
            run(&mut runner, &setup, &Batch::random(&mut random, 0));
        }
        prop_assert_eq!(counts(&probes), committed);
        for (id, planned) in runner.allocator().ids().zip(runner.plan().backends().to_vec()) {
            let report = runner.memory_report(id);
            prop_assert_eq!(runner.allocator().charged(id), planned.charges());
            let [weights, kv, pool, scratch] = measured(&runner, id);
            prop_assert_eq!([report.weights_bytes, report.kv_bytes], [weights, kv]);
            prop_assert_eq!([report.pool_bytes, report.scratch_bytes], [pool, scratch]);
            prop_assert_eq!(report.pool_bytes, runner.allocator().backend(id).pool_len());
            prop_assert!(report.peak_live_bytes <= report.pool_bytes.saturating_sub(report.staging_bytes));
        }
    }

    /// A budget of exactly the plan runs everything; one byte less on any backend is refused before anything exists.
    #[test]
    fn b2_an_admitted_plan_is_never_refused_later(mut setup in setups(), seed: u64) {
        let totals: Vec<Bytes> = setup.plan().backends().iter().map(|p| p.charges().total()).collect();
        setup.budgets = totals.iter().map(|&total| Budget::Limited(total)).collect();
        let (mut runner, _) = setup.start();
        let mut random = Rng::new(seed);
        for _ in 0..3 {
            run(&mut runner, &setup, &Batch::random(&mut random, 0));
        }
        for id in runner.allocator().ids() {
            prop_assert_eq!(runner.memory_report(id).headroom_bytes(), Some(Bytes::ZERO));
        }
        for (index, &total) in totals.iter().enumerate().filter(|(_, total)| total.get() > 0) {
            let budgets = setup.budgets.clone();
            setup.budgets[index] = Budget::Limited(Bytes::new(total.get() - 1));
            let (backends, probes) = setup.backends();
            let refused = Runner::new(backends, setup.plan()).unwrap_err();
            prop_assert!(matches!(refused, Error::Budget(_)), "{}", refused);
            prop_assert!(probes.iter().all(|p| Probe::count(&p.created) == 0));
            setup.budgets = budgets;
        }
    }

    /// A switch back finds its graph, the same slots, and what the backends captured.
    #[test]
    fn a9_a_rebuild_moves_no_slot_and_prepares_nothing(setup in setups(), seed: u64) {
        let (mut runner, probes) = setup.start();
        let mut random = Rng::new(seed);
        let batches: Vec<Batch> = rungs(BATCH)
            .map(|rung| Batch::new(&mut random, rung, BatchCounts { tokens: rung.tokens, outputs: rung.outputs }, 0))
            .collect();
        let first: Vec<_> = batches.iter().map(|batch| run(&mut runner, &setup, batch)).collect();
        let prepared = |probes: &[std::sync::Arc<Probe>]| {
            probes.iter().map(|p| Probe::count(&p.prepared)).collect::<Vec<_>>()
        };
        let generation = |runner: &Runner| {
            let alloc = runner.allocator();
            alloc.ids().map(|id| alloc.backend(id).pool_gen()).collect::<Vec<_>>()
        };
        let before = (prepared(&probes), generation(&runner), runner.stats().builds);
        for (batch, first) in batches.iter().zip(&first).rev() {
            prop_assert_eq!(&run(&mut runner, &setup, batch), first);
        }
        prop_assert_eq!((prepared(&probes), generation(&runner), runner.stats().builds), before);
        prop_assert_eq!(runner.stats().reuses, batches.len() as u64);
    }
}
