//! The tiny models' logits against those of an independent implementation.

#![allow(clippy::unwrap_used, reason = "only a test uses it")]

mod common;

use common::{ARCHS, arch, data, load, options, score};
use minfer_engine::ScoredPosition;
use serde_json::Value;

/// Normalized mean squared error of all logits of all positions.
fn nmse(golden: &Value, scored: &[ScoredPosition]) -> f64 {
    let (mut error, mut norm) = (0.0, 0.0);
    for (expected, position) in golden["positions"].as_array().unwrap().iter().zip(scored) {
        let expected = expected["logits"].as_array().unwrap();
        assert_eq!(expected.len(), position.top.len());
        for &(id, logit) in &position.top {
            let expected = expected[id as usize].as_f64().unwrap();
            error += (f64::from(logit) - expected).powi(2);
            norm += expected * expected;
        }
    }
    error / norm
}

#[test]
fn logits_of_every_family_are_those_of_the_reference() {
    for name in ARCHS {
        let text = std::fs::read_to_string(data(&format!("archs/{name}.json"))).unwrap();
        let golden: Value = serde_json::from_str(&text).unwrap();
        let ids: Vec<u32> = serde_json::from_value(golden["tokens"].clone()).unwrap();
        for (batch, threads) in [(512, 2), (1, 1)] {
            let mut engine = load(&arch(name), &options(batch), threads);
            let (_, scored) = score(&mut engine, &ids, 128);
            let nmse = nmse(&golden, &scored);
            assert!(nmse < 1e-6, "{name}, batch {batch}: normalized mean squared error {nmse:e}");
        }
    }
}
