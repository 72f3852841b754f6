//! Odd, damaged and hostile files of a shared corpus, where that is there: `MINFER_SHARED`, or `../shared`
//! beside the checkout.
#![allow(clippy::unwrap_used, reason = "helpers of tests unwrap as tests do")]

use std::path::PathBuf;

use minfer_gguf::Index;
use serde_json::Value;

/// Cases whose format is good: what is wrong is a matter of the model.
const MODEL_LEVEL: [&str; 6] = [
    "kv-architecture-escape",
    "ten-shape-narrow",
    "ten-shape-flat",
    "ten-shape-norm-63",
    "ten-missing-norm",
    "split-second-first",
];

fn corpus() -> Option<PathBuf> {
    let beside = || concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared").into();
    let shared = std::env::var_os("MINFER_SHARED").map_or_else(beside, PathBuf::from);
    Some(shared.join("malformed")).filter(|dir| dir.join("manifest.json").is_file())
}

/// Whether one of the alternatives of `a|b|c` is in the message.
fn matches(message: &str, pattern: &str) -> bool {
    pattern.split('|').any(|words| message.to_lowercase().contains(&words.to_lowercase()))
}

fn open(path: &std::path::Path) -> Result<Index, minfer_gguf::Error> {
    let index = Index::open(path)?;
    index.metadata().architecture()?;
    Ok(index)
}

#[test]
fn corpus_files_are_refused_in_words_or_accepted() {
    let Some(dir) = corpus() else { return };
    let manifest: Value = serde_json::from_slice(&std::fs::read(dir.join("manifest.json")).unwrap()).unwrap();
    let mut wrong = Vec::new();
    for case in manifest["cases"].as_array().unwrap() {
        let text = |key: &str| case[key].as_str().unwrap();
        let name = text("name");
        let format_level = ["file", "head", "kv", "ten", "lay", "cut", "split", "fs"].contains(&text("kind"));
        let result = open(&dir.join(text("file")));
        let refuse = format_level && text("expect") == "refuse" && !MODEL_LEVEL.contains(&name);
        match result {
            Ok(_) if refuse => wrong.push(format!("{name}: accepted")),
            Err(error) if text("expect") == "accept" => wrong.push(format!("{name}: refused: {error}")),
            Err(error) if refuse => {
                let message = error.to_string();
                let words = case["words"].as_array().unwrap();
                assert!(!message.contains(|c: char| c.is_control()), "{name}: {message:?}");
                if !words.iter().all(|pattern| matches(&message, pattern.as_str().unwrap())) {
                    wrong.push(format!("{name}: {message} lacks {words:?}"));
                }
            }
            _ => {}
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
