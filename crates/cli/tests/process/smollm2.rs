//! A real model. `cargo xtask fetch-models` brings it into the cache.

use serde_json::Value;

use super::support::*;

const MODEL: &str = "smollm2:135m";

/// Runs on the model in the cache, or as a last resort fetches it.
fn cached(args: &[&str]) -> Outcome {
    let outcome = run(args);
    assert!(
        !outcome.err.contains("cannot get"),
        "{MODEL} is not in the cache: run `cargo xtask fetch-models` first\n{}",
        outcome.err
    );
    outcome
}

fn golden(file: &str) -> Value {
    let path = format!("{}/../testkit/data/{file}", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn its_text_is_tokenized_as_its_peer_does() {
    let text = concat!(env!("CARGO_MANIFEST_DIR"), "/../testkit/data/text/unicode.txt");
    let tokens = cached(&["tokenize", MODEL, "--file", text, "--json"]).json();
    assert_eq!(tokens["ids"], golden("golden/smollm2-135m-instruct-q4_1/unicode.reference.json")["tokens"]);
}

#[test]
fn it_answers_with_its_template() {
    let answer = cached(&["run", MODEL, "Say hello.", "--temp", "0", "-n", "16", "--json"]).json();
    assert!(!answer["text"].as_str().unwrap().trim().is_empty());
    assert!(!answer["text"].as_str().unwrap().contains("<|im_"));
}

#[test]
fn its_plan_fits_and_has_30_blocks() {
    let plan = cached(&["plan", MODEL, "--json"]).json();
    assert_eq!((plan["fits"].as_bool(), plan["blocks"].as_array().map(Vec::len)), (Some(true), Some(30)));
    let page = cached(&["plan", MODEL]).out;
    assert!(page.contains("FITS") && page.lines().all(|line| line.chars().count() <= 80), "{page}");
}
