//! The bits of a result depend neither on the threads nor on the batch nor on the kernel table.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use minfer_backend_cpu::{CpuBackend, CpuSpec, Kernels};
use minfer_graph::{BatchCounts, StateId};
use minfer_tensor::DType;
use minfer_testkit::cases::{all_cases, run_raw};
use minfer_testkit::rng::Rng;
use minfer_testkit::runner::{Runner, Session};
use minfer_testkit::transformer::Transformer;

const MODEL: Transformer = Transformer::TINY;
/// The same with keys and values in blocks.
const BLOCKS: Transformer = Transformer { kv: DType::Q8_0, ..MODEL };
/// The same with norms behind attention and feed-forward network.
const POST_NORMS: Transformer = Transformer { post_norms: true, ..MODEL };
/// More than a chunk of keys, and no multiple of anything.
const TOKENS: usize = 290;

/// The bits of the last token's logits, and the states.
type Outcome = (Vec<u32>, Vec<Vec<u8>>);

fn backend(threads: usize, kernels: &'static Kernels) -> CpuBackend {
    CpuBackend::new(CpuSpec::new(threads, kernels)).unwrap()
}

/// Feeds all tokens in batches of `batch` to a graph of `rung`.
fn generate(
    model: Transformer,
    threads: usize,
    kernels: &'static Kernels,
    rung: usize,
    batch: usize,
) -> Outcome {
    let mut backend = backend(threads, kernels);
    let mut session = Session::new(&mut backend);
    model.register(&mut session, 7).unwrap();
    // As a prompt is read: only the last of its batches gives logits.
    let [mut stores, mut runner] =
        [0, 1].map(|n_out| Runner::new(&mut session, &model.graph(rung, n_out).unwrap()).unwrap());
    let mut rng = Rng::new(3);
    let tokens: Vec<i32> = (0..TOKENS).map(|_| rng.below(model.n_vocab) as i32).collect();
    for (i, part) in tokens.chunks(batch).enumerate() {
        let is_last = (i + 1) * batch >= TOKENS;
        let runner = if is_last { &mut runner } else { &mut stores };
        model.step(&mut session, runner, part, i * batch, usize::from(is_last)).unwrap();
    }
    let logits = runner.output(&session, 0, BatchCounts { tokens: 1, outputs: 1 }).unwrap();
    let states = (0..2 * model.n_layers).map(|i| session.state_bytes(StateId::new(i)).unwrap());
    (logits.into_iter().map(f32::to_bits).collect(), states.collect())
}

#[test]
fn threads_batches_and_tables_change_no_bit() {
    for model in [MODEL, BLOCKS, POST_NORMS] {
        let reference = generate(model, 1, Kernels::detect(), 1, 1);
        assert!(reference.0.iter().all(|&bits| f32::from_bits(bits).is_finite()));
        for kernels in Kernels::available() {
            for threads in [1, 2, 3] {
                for (rung, batch) in [(1, 1), (8, 5), (128, 40), (128, 128)] {
                    let what =
                        format!("{}, {}, {threads} threads, {batch} of {rung}", model.kv, kernels.name());
                    assert!(generate(model, threads, kernels, rung, batch) == reference, "{what}");
                }
            }
        }
    }
}

#[test]
fn every_case_has_the_same_bits_on_every_table_and_team() {
    let bits = |threads, kernels, repack| -> Vec<Outcome> {
        let spec = CpuSpec::new(threads, kernels).with_repack(repack);
        let mut backend = CpuBackend::new(spec).unwrap();
        let cases = all_cases().into_iter().filter(|case| case.supported_by(&spec));
        let runs = cases.map(|case| run_raw(&mut backend, &case).unwrap());
        runs.map(|(output, states)| (output.into_iter().map(f32::to_bits).collect(), states)).collect()
    };
    let reference = bits(1, Kernels::detect(), false);
    for kernels in Kernels::available() {
        for (threads, repack) in [(1, true), (3, true), (3, false)] {
            let what = format!("{}, {threads} threads, repack {repack}", kernels.name());
            assert!(bits(threads, kernels, repack) == reference, "{what}");
        }
    }
}
