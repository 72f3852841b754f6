//! A whole model, in batches and token by token, against the CPU.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use minfer_backend_cpu::{CpuBackend, CpuSpec};
use minfer_backend_wgpu::OpenOptions;
use minfer_graph::{Backend, BatchCounts, StateId};
use minfer_tensor::DType;
use minfer_testkit::Tolerance;
use minfer_testkit::rng::Rng;
use minfer_testkit::runner::{Runner, Session};
use minfer_testkit::transformer::Transformer;

/// The CPU rounds no activations where weights are f32.
const MODEL: Transformer =
    Transformer { weights: DType::F32, head: DType::F32, kv: DType::F32, ..Transformer::TINY };
const TOKENS: usize = 45;

/// Feeds all tokens in batches of `batch` to a graph of `rung`; the last token's logits and all keys and values.
fn generate(backend: &mut dyn Backend, model: Transformer, rung: usize, batch: usize) -> Vec<Vec<f32>> {
    let mut session = Session::new(backend);
    model.register(&mut session, 7).unwrap();
    let mut runner = Runner::new(&mut session, &model.graph(rung, 1).unwrap()).unwrap();
    let mut rng = Rng::new(3);
    let tokens: Vec<i32> = (0..TOKENS).map(|_| rng.below(model.n_vocab) as i32).collect();
    for (i, part) in tokens.chunks(batch).enumerate() {
        model.step(&mut session, &mut runner, part, i * batch, 1).unwrap();
    }
    let logits = runner.output(&session, 0, BatchCounts { tokens: 1, outputs: 1 }).unwrap();
    let states = (0..2 * model.n_layers).map(|i| runner.state_rows(&session, StateId::new(i)).unwrap());
    let floats = |bytes: Vec<u8>| bytes.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect();
    let found = std::iter::once(logits).chain(states.map(floats)).collect();
    runner.release(&mut session);
    session.close();
    found
}

fn assert_close(expected: &[Vec<f32>], found: &[Vec<f32>], what: &str) {
    for (expected, found) in expected.iter().zip(found) {
        let expected: Vec<f64> = expected.iter().map(|&x| f64::from(x)).collect();
        Tolerance::F32.check(&expected, found).unwrap_or_else(|error| panic!("{what}: {error}"));
    }
}

#[test]
fn a_model_agrees_with_the_cpu_in_any_batch() {
    let Some(mut backend) = support::open(OpenOptions::default()) else { return };
    let mut cpu = CpuBackend::new(CpuSpec::detect(1)).unwrap();
    let expected = generate(&mut cpu, MODEL, 64, TOKENS);
    for (rung, batch) in [(1, 1), (8, 5), (64, 45)] {
        let found = generate(&mut backend, MODEL, rung, batch);
        assert_close(&expected, &found, &format!("{batch} of {rung}"));
    }
}

#[test]
fn a_run_in_many_submissions_is_the_same_run() {
    let whole = support::open(OpenOptions::default());
    let pieces = support::open(OpenOptions { products_at_once: Some(1), ..Default::default() });
    let (Some(mut whole), Some(mut pieces)) = (whole, pieces) else { return };
    let expected = generate(&mut whole, MODEL, 64, TOKENS);
    assert!(generate(&mut pieces, MODEL, 64, TOKENS) == expected);
    let [whole, pieces] = [whole.counters(), pieces.counters()];
    assert_eq!(whole.dispatches, pieces.dispatches);
    assert_eq!(whole.weight_bytes, pieces.weight_bytes);
    // A block has seven products and its attention.
    assert!(pieces.submissions >= whole.submissions + 8 * MODEL.n_layers as u64, "{pieces:?}, {whole:?}");
}
