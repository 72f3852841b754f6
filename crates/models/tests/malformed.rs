//! Odd and damaged files of a shared corpus, where that is there: `MINFER_SHARED`, or `../shared` beside the checkout.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use minfer_gguf::Index;
use minfer_models::Model;
use minfer_tensor::DType;
use serde_json::Value;

/// Kinds whose faults are in the format or in the model; those of the tokenizer, the template and the data show later.
const KINDS: [&str; 11] = ["base", "file", "head", "kv", "type", "hp", "ten", "lay", "cut", "split", "fs"];

fn corpus() -> Option<PathBuf> {
    let beside = || concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared").into();
    let shared = std::env::var_os("MINFER_SHARED").map_or_else(beside, PathBuf::from);
    Some(shared.join("malformed")).filter(|dir| dir.join("manifest.json").is_file())
}

fn load(path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let model = Model::from_index(&Index::open(path)?)?;
    let states = model.states(64, DType::F16)?;
    model.build(8, 8, &states)?;
    Ok(())
}

/// Whether one of the alternatives of `a|b|c` is in the message. A dot of the pattern is any character, here an underscore.
fn says(message: &str, pattern: &Value) -> bool {
    let plain = |text: &str| text.to_lowercase().replace('_', ".");
    pattern.as_str().unwrap().split('|').any(|words| plain(message).contains(&plain(words)))
}

/// What is wrong with the answer to a case.
fn fault(case: &Value, result: Result<(), Box<dyn std::error::Error>>) -> Option<String> {
    match (case["expect"].as_str().unwrap(), result) {
        ("refuse", Ok(())) => Some("accepted".to_owned()),
        ("accept", Err(error)) => Some(format!("refused: {error}")),
        ("refuse", Err(error)) => {
            let message = error.to_string();
            let words = case["words"].as_array().unwrap();
            let clear =
                words.iter().all(|words| says(&message, words)) && !message.contains(char::is_control);
            (!clear).then(|| format!("{message:?} lacks {words:?}"))
        }
        _ => None,
    }
}

#[test]
fn corpus_files_are_refused_in_words_or_accepted() {
    let Some(dir) = corpus() else { return };
    let manifest: Value = serde_json::from_slice(&std::fs::read(dir.join("manifest.json")).unwrap()).unwrap();
    let mut wrong = Vec::new();
    for case in manifest["cases"].as_array().unwrap() {
        if KINDS.contains(&case["kind"].as_str().unwrap()) {
            let result = load(&dir.join(case["file"].as_str().unwrap()));
            wrong.extend(fault(case, result).map(|fault| format!("{}: {fault}", case["name"])));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
