//! Tiny models of every family, evaluated by the oracle, against the logits of an independent implementation.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use minfer_gguf::Index;
use minfer_graph::{ComputeGraph, Shape, StateId, WeightId};
use minfer_models::{Model, OUT_IDS, POSITIONS, TOKENS};
use minfer_tensor::DType;
use minfer_testkit::oracle::{Leaves, Matrix, eval};
use minfer_testkit::tolerance::Tolerance;
use serde_json::Value;

/// The peer's activation functions go through tables of f16, and it rounds sums to f32.
const PEER: Tolerance = Tolerance { name: "peer", nmse: 1e-6 };
const N_CTX: usize = 64;

/// A model with its weights decoded, ready for the oracle.
struct Loaded {
    model: Model,
    leaves: Leaves,
}

fn path(name: &str, extension: &str) -> PathBuf {
    let archs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testkit/data/archs");
    archs.join(format!("{name}-dense.{extension}"))
}

fn load(name: &str) -> Loaded {
    let bytes = std::fs::read(path(name, "gguf")).unwrap();
    let index = Index::from_bytes(bytes.clone()).unwrap();
    let model = Model::from_index(&index).unwrap();
    let mut leaves = Leaves::default();
    for (i, decl) in model.weights().iter().enumerate() {
        let tensor = index.tensor(&decl.name).unwrap();
        let range = tensor.range();
        let data = &bytes[range.start as usize..range.end as usize];
        leaves.weights.insert(WeightId::new(i), Matrix::decode(tensor.dtype, decl.shape, data));
    }
    for (i, decl) in model.states(N_CTX, DType::F32).unwrap().iter().enumerate() {
        leaves.states.insert(StateId::new(i), Matrix::from_fn(decl.shape, |_, _| 0.0));
    }
    Loaded { model, leaves }
}

fn column(values: &[i32]) -> Matrix {
    Matrix::from_fn(Shape::new(values.len(), 1), |row, _| f64::from(values[row]))
}

impl Loaded {
    fn graph(&self, tokens: usize, outputs: usize) -> ComputeGraph {
        let states = self.model.states(N_CTX, DType::F32).unwrap();
        self.model.build(tokens, outputs, &states).unwrap()
    }

    /// The outputs of `graph` for its inputs by name.
    fn run(&mut self, graph: &ComputeGraph, inputs: &[(&str, &[i32])]) -> Vec<Matrix> {
        for (name, values) in inputs {
            self.leaves.inputs.insert(graph.input(name).unwrap(), column(values));
        }
        eval(graph, &mut self.leaves)
    }
}

/// The ids of a golden file and its logits after each of them.
fn golden(name: &str) -> (Vec<i32>, Vec<f64>) {
    let golden: Value = serde_json::from_slice(&std::fs::read(path(name, "json")).unwrap()).unwrap();
    let ids = golden["tokens"].as_array().unwrap().iter().map(|id| id.as_i64().unwrap() as i32).collect();
    let positions = golden["positions"].as_array().unwrap();
    let logits = positions.iter().flat_map(|position| position["logits"].as_array().unwrap());
    (ids, logits.map(|logit| logit.as_f64().unwrap()).collect())
}

fn check_family(name: &str) {
    let mut loaded = load(name);
    let (ids, expected) = golden(name);
    let n = ids.len();
    let graph = loaded.graph(n, n);
    let rows: Vec<i32> = (0..n as i32).collect();
    let outputs = loaded.run(&graph, &[(TOKENS, &ids), (POSITIONS, &rows), (OUT_IDS, &rows)]);
    let found: Vec<f32> = outputs[0].data.iter().map(|&logit| logit as f32).collect();
    PEER.check(&expected, &found).unwrap_or_else(|mismatch| panic!("{name}: {mismatch}"));
}

#[test]
fn llama_agrees_with_the_peer() {
    check_family("llama");
}

#[test]
fn qwen2_agrees_with_the_peer() {
    check_family("qwen2");
}

#[test]
fn qwen3_agrees_with_the_peer() {
    check_family("qwen3");
}

#[test]
fn gemma3_agrees_with_the_peer() {
    check_family("gemma3");
}

/// Two padded batches, the first without logits, then a token alone: the last row of logits is that of one batch.
#[test]
fn b2_how_tokens_are_batched_and_padded_is_data() {
    let (ids, expected) = golden("llama");
    let mut loaded = load("llama");
    let prefill = loaded.graph(16, 0);
    for first in [0, 12] {
        let pad = |value: &dyn Fn(usize) -> i32, there: usize, missing| -> Vec<i32> {
            (0..16).map(|i| if i < there { value(first + i) } else { missing }).collect()
        };
        let there = if first == 0 { 12 } else { ids.len() - 1 - 12 };
        let tokens = pad(&|i| ids[i], there, 0);
        let positions = pad(&|i| i as i32, there, -1);
        loaded.run(&prefill, &[(TOKENS, &tokens), (POSITIONS, &positions)]);
    }
    let last = ids.len() - 1;
    let decode = loaded.graph(1, 2);
    let inputs: [(&str, &[i32]); 3] =
        [(TOKENS, &ids[last..]), (POSITIONS, &[last as i32]), (OUT_IDS, &[0, -1])];
    let logits = loaded.run(&decode, &inputs).remove(0);
    let found: Vec<f32> = logits.row(0).iter().map(|&logit| logit as f32).collect();
    PEER.check(&expected[last * found.len()..], &found).unwrap();
}
