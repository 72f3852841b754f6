//! Token ids against those of other implementations.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

use minfer_gguf::Index;
use minfer_text::{Specials, Tokenizer};

fn load(path: &Path) -> Tokenizer {
    let index = Index::open(path).unwrap();
    let tokenizer = Tokenizer::from_metadata(index.metadata()).unwrap();
    let (held, bound) = (tokenizer.heap_bytes(), Tokenizer::heap_bound(index.metadata()));
    assert!(held <= bound, "{}: {held} held, {bound} expected", path.display());
    tokenizer
}

/// Checks a suite of llama.cpp: `PATH`, `PATH.inp`, `PATH.out`.
fn check_suite(path: &Path) {
    let tokenizer = load(path);
    let read = |extension: &str| fs::read_to_string(format!("{}.{extension}", path.display())).unwrap();
    let (inputs, outputs) = (read("inp"), read("out"));
    // The last text, too, ends with the separator.
    let texts: Vec<&str> = inputs.split_terminator("\n__ggml_vocab_test__\n").collect();
    let expected: Vec<&str> = outputs.lines().collect();
    assert_eq!(texts.len(), expected.len(), "{}", path.display());
    for (text, expected) in texts.into_iter().zip(expected) {
        let expected: Vec<u32> = expected.split_whitespace().map(|id| id.parse().unwrap()).collect();
        let ids = tokenizer.encode(text, Specials::NONE).unwrap();
        assert_eq!(ids, expected, "{}: {text:?}", path.display());
        let bytes: Vec<u8> = ids.iter().flat_map(|&id| tokenizer.token_bytes(id)).copied().collect();
        let decoded = String::from_utf8(bytes).unwrap();
        // SentencePiece puts a space in front.
        assert!(decoded == text || decoded.strip_prefix(' ') == Some(text), "{decoded:?} for {text:?}");
    }
}

#[test]
fn committed_suites() {
    for name in ["gpt-2", "llama-spm", "phi-3"] {
        check_suite(
            &Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/data/ggml-vocab-{name}.gguf")),
        );
    }
}

/// The folder of large golden files, which not every checkout has beside it.
fn shared() -> Option<PathBuf> {
    // Beside the checkout.
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let path = std::env::var_os("MINFER_SHARED").map_or_else(beside, PathBuf::from);
    path.join("golden").is_dir().then_some(path)
}

#[test]
fn shared_suites() {
    let Some(shared) = shared() else { return };
    for name in ["llama-bpe", "qwen2"] {
        check_suite(&shared.join(format!("golden/vocab/ggml-vocab-{name}.gguf")));
    }
}

/// The ids of a model's reference file: special tokens parsed, BOS as the model says.
fn reference_ids(path: &Path) -> Vec<u32> {
    let json = fs::read_to_string(path).unwrap();
    let (_, list) = json.split_once("\"tokens\"").unwrap();
    let list = &list[list.find('[').unwrap() + 1..list.find(']').unwrap()];
    list.split(',').map(|id| id.trim().parse().unwrap()).collect()
}

/// The folder with the model of an alias, as `minfer` and `cargo xtask fetch-models` keep it.
fn cached(alias: &str) -> Option<PathBuf> {
    let folder = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let platform = || folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")));
    let cache = folder("MINFER_CACHE").or_else(|| Some(platform()?.join("minfer")))?;
    Some(cache.join("alias").join(alias))
}

/// Checks the ids of a model on the committed texts, if its file is in this folder.
fn check_model(folder: Option<PathBuf>, file: &str, golden: &str) {
    let Some(model) = folder.map(|folder| folder.join(file)).filter(|model| model.is_file()) else { return };
    let tokenizer = load(&model);
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testkit/data");
    for name in ["code", "long", "short", "unicode"] {
        let text = fs::read_to_string(data.join(format!("text/{name}.txt"))).unwrap();
        let expected = reference_ids(&data.join(format!("golden/{golden}/{name}.reference.json")));
        assert_eq!(tokenizer.encode(&text, Specials::ALL).unwrap(), expected, "{file}: {name}");
    }
}

/// Real models, where they were fetched, or where `MINFER_TEST_MODELS` names the folder that has them.
#[test]
fn real_models() {
    let named = || std::env::var_os("MINFER_TEST_MODELS").map(PathBuf::from);
    for (alias, file, golden) in [
        ("smollm2-135m", "SmolLM2-135M-Instruct.Q4_1.gguf", "smollm2-135m-instruct-q4_1"),
        ("gemma3-270m", "gemma-3-270m-q4_k_m.gguf", "gemma-3-270m-q4_k_m"),
    ] {
        check_model(cached(alias), file, golden);
        check_model(named(), file, golden);
    }
}
