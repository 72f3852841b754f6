//! The graphs of every family, as text, against committed snapshots. `MINFER_BLESS=1` rewrites them.
#![allow(clippy::unwrap_used)]

mod common;

use std::path::Path;

use common::TinyModel;
use minfer_graph::{ComputeGraph, Op};
use minfer_tensor::DType;

fn graph(model: &TinyModel, tokens: usize, outputs: usize) -> ComputeGraph {
    let model = model.load().unwrap();
    let states = model.states(128, DType::F16).unwrap();
    model.build(tokens, outputs, &states).unwrap()
}

fn check(name: &str, graph: &ComputeGraph) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots").join(name);
    let text = graph.to_string();
    if std::env::var_os("MINFER_BLESS").is_some() {
        std::fs::write(&path, text).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text, expected, "{name} differs; MINFER_BLESS=1 rewrites it");
}

#[test]
fn every_family_builds_the_graph_of_its_snapshot() {
    for family in minfer_models::FAMILIES {
        check(&format!("{}.txt", family.name), &graph(&TinyModel::new(family.name), 8, 2));
    }
}

#[test]
fn without_outputs_the_graph_ends_with_the_last_keys_and_values() {
    let graph = graph(&TinyModel::new("llama"), 8, 0);
    check("llama-no-outputs.txt", &graph);
    assert_eq!(graph.outputs(), []);
    assert!(graph.nodes().last().is_some_and(|node| node.op == Op::WriteRows));
}

#[test]
fn what_a_llama_file_may_have_besides() {
    let mut model = TinyModel::new("llama");
    model.remove_tensor("output.weight");
    model.add("rope_freqs.weight", DType::F32, &[8]);
    model.add("blk.0.attn_output.bias", DType::F16, &[64]);
    model.add("blk.1.ffn_up.scale", DType::F32, &[1]);
    model.set("rope.scaling.type", "linear");
    model.set("rope.scaling.factor", 4.0f32);
    check("llama-extras.txt", &graph(&model, 8, 2));
}
