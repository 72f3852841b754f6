//! The release binary against golden data that lives beside the checkout, where that is there.
//!
//! `$MINFER_SHARED`, else `../shared`, holds `golden/` (logits of real and tiny models, tokenizer suites,
//! `compare.py`) and `malformed/` (a corpus of odd files, `try_corpus.py`).

use crate::models::{self, MODELS, Model, binary, minfer};
use crate::shell::{output, run_command};
use crate::{matrix, setup};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const TEXTS: &[&str] = &["short", "code", "unicode", "long"];
const VOCABULARIES: &[&str] = &["gpt-2", "llama-bpe", "llama-spm", "phi-3", "qwen2"];
/// Between the texts of a tokenizer suite, on a line of its own.
const SEPARATOR: &str = "\n__ggml_vocab_test__\n";
/// The tiny models of the architectures that minfer has.
const ARCHS: &[&str] = &["llama-dense", "qwen2-dense", "qwen3-dense", "gemma3-dense"];
/// The three runs over the corpus of odd files: options, then minfer's arguments.
const CORPUS_RUNS: &[(&[&str], &[&str])] = &[
    (&["--same"], &["a", "-n", "8", "--temp", "0", "--no-template"]),
    (&["--only", "^chat"], &["a", "-n", "2"]),
    (&["--mem-gib", "1"], &["a", "-n", "8", "--temp", "0", "--no-template"]),
];

/// Builds the binary, fetches the models, and runs every check.
pub(crate) fn run() -> Result<()> {
    models::fetch()?;
    matrix::quick()?;
    check()
}

/// Runs every check, or says that there is nothing to run it on.
fn check() -> Result<()> {
    let shared = shared();
    let golden = shared.join("golden");
    if !golden.is_dir() {
        eprintln!("no conformance data at {}: skipped", shared.display());
        return Ok(());
    }
    let scratch = crate::root().join("target/conformance");
    fs::create_dir_all(&scratch)?;
    for model in MODELS {
        real_model(model, &golden, &scratch)?;
    }
    let on_device = setup::has_software_vulkan();
    for arch in ARCHS {
        architecture(arch, &[], &golden, &scratch)?;
        // Some of the blocks, and all: what crosses, and what a full offload adds.
        for layers in ["1", "all"].iter().filter(|_| on_device) {
            architecture(arch, &["--device", "wgpu", "--gpu-layers", layers], &golden, &scratch)?;
        }
    }
    for name in VOCABULARIES {
        let suite = golden.join("vocab").join(format!("ggml-vocab-{name}.gguf"));
        vocabulary(&suite, &scratch).with_context(|| format!("tokenizer suite {name}"))?;
    }
    CORPUS_RUNS.iter().try_for_each(|(options, args)| corpus(&shared.join("malformed"), options, args))
}

/// The folder of the golden data, there or not.
pub(crate) fn shared() -> PathBuf {
    std::env::var_os("MINFER_SHARED").map_or_else(|| crate::root().join("../shared"), PathBuf::from)
}

/// All texts of one model are scored and pooled.
fn real_model(model: &Model, golden: &Path, scratch: &Path) -> Result<()> {
    let mut compare = python(&golden.join("compare.py"));
    compare.arg("real");
    for text in TEXTS {
        let ours = scratch.join(format!("{}.{text}.json", model.golden));
        let file = golden.join("text").join(format!("{text}.txt"));
        perplexity(model.alias, &["--file".as_ref(), file.as_ref(), "--top".as_ref(), "10".as_ref()], &ours)?;
        let expected = golden.join(model.golden);
        let [reference, peer] =
            ["reference", "peer"].map(|kind| expected.join(format!("{text}.{kind}.json")));
        compare.args([reference, peer, ours]);
    }
    eprintln!("{}:", model.alias);
    run_quietly(&mut compare)
}

/// The logits of a tiny model, with more options.
fn architecture(arch: &str, more: &[&str], golden: &Path, scratch: &Path) -> Result<()> {
    let expected = golden.join("archs").join(format!("{arch}.json"));
    let text =
        fs::read_to_string(&expected).with_context(|| format!("cannot read {}", expected.display()))?;
    let tokens = ids(&serde_json::from_str::<Value>(&text)?["tokens"])?.join(",");
    let ours = scratch.join(format!("{arch}.json"));
    let args = [&["--tokens", &tokens, "--top", "128", "--kv-type", "f32"], more].concat();
    let args: Vec<&OsStr> = args.into_iter().map(OsStr::new).collect();
    perplexity(expected.with_extension("gguf"), &args, &ours)?;
    eprintln!("{arch} {}:", more.join(" "));
    run_quietly(python(&golden.join("compare.py")).arg("arch").args([expected, ours]))
}

fn perplexity(model: impl AsRef<OsStr>, args: &[&OsStr], into: &Path) -> Result<()> {
    let json = output(minfer().arg("perplexity").arg(model).args(args).arg("--json"))?;
    fs::write(into, json).with_context(|| format!("cannot write {}", into.display()))
}

/// Every text of `SUITE.inp` gives the ids on its line of `SUITE.out`.
fn vocabulary(suite: &Path, scratch: &Path) -> Result<()> {
    let [texts, expected] = ["gguf.inp", "gguf.out"].map(|end| suite.with_extension(end));
    let (texts, expected) = (fs::read_to_string(texts)?, fs::read_to_string(expected)?);
    let (texts, expected): (Vec<&str>, Vec<&str>) = (suite_texts(&texts), expected.lines().collect());
    ensure!(texts.len() == expected.len(), "{} texts but {} lines of ids", texts.len(), expected.len());
    let file = scratch.join("text.txt");
    for (number, (text, expected)) in texts.iter().zip(expected).enumerate() {
        fs::write(&file, text)?;
        let mut tokenize = minfer();
        tokenize.arg("tokenize").arg(suite).arg("--file").arg(&file).args(["--no-special", "--json"]);
        let found = ids(&serde_json::from_slice::<Value>(&output(&mut tokenize)?)?["ids"])?;
        let expected: Vec<&str> = expected.split_whitespace().collect();
        ensure!(found == expected, "text {number} {text:?}: expected {expected:?}, found {found:?}");
    }
    eprintln!("{}: {} texts", suite.display(), texts.len());
    Ok(())
}

/// The texts of a suite; the separator after the last one ends it.
fn suite_texts(suite: &str) -> Vec<&str> {
    let mut texts: Vec<&str> = suite.split(SEPARATOR).collect();
    if texts.last().is_some_and(|last| last.is_empty()) {
        texts.pop();
    }
    texts
}

fn corpus(malformed: &Path, options: &[&str], args: &[&str]) -> Result<()> {
    let mut command = python(&malformed.join("try_corpus.py"));
    command
        .env("MINFER_DEVICE", "cpu")
        .args(options)
        .arg(malformed)
        .arg("--")
        .arg(binary())
        .args(["run", "{}"])
        .args(args);
    run_command(&mut command)
}

fn python(script: &Path) -> Command {
    let mut python = Command::new("python3");
    python.arg(script);
    python
}

/// Runs a command whose arguments are too many to be worth showing.
fn run_quietly(command: &mut Command) -> Result<()> {
    let status = command.status()?;
    ensure!(status.success(), "the results are too far from the golden ones");
    Ok(())
}

fn ids(value: &Value) -> Result<Vec<String>> {
    let ids = value.as_array().context("no array of ids")?;
    ids.iter().map(|id| Ok(id.as_u64().context("an id isn't a number")?.to_string())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suite_keeps_its_blank_texts() {
        assert_eq!(
            suite_texts("a\n__ggml_vocab_test__\n\n__ggml_vocab_test__\n b\n__ggml_vocab_test__\n"),
            ["a", "", " b"]
        );
        assert_eq!(suite_texts("a\n__ggml_vocab_test__\nb"), ["a", "b"]);
    }
}
