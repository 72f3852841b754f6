//! Token ids against those of other implementations.

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
    let texts: Vec<&str> = inputs.split("\n__ggml_vocab_test__\n").collect();
    let expected: Vec<&str> = outputs.lines().collect();
    assert_eq!(texts.len(), expected.len(), "{}", path.display());
    for (text, expected) in texts.into_iter().zip(expected) {
        let expected: Vec<u32> = expected.split_whitespace().map(|id| id.parse().unwrap()).collect();
        let ids = tokenizer.encode(text, Specials::NONE).unwrap();
        assert_eq!(ids, expected, "{}: {text:?}", path.display());
        let bytes: Vec<u8> = ids.iter().flat_map(|&id| tokenizer.token_bytes(id)).copied().collect();
        let decoded = String::from_utf8(bytes).unwrap();
        // SentencePiece puts a space in front.
        assert_eq!(decoded.strip_prefix(' ').unwrap_or(&decoded), text.strip_prefix(' ').unwrap_or(text));
    }
}

#[test]
fn committed_suites() {
    for name in ["gpt-2", "llama-spm", "phi-3"] {
        check_suite(&Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/data/ggml-vocab-{name}.gguf")));
    }
}

/// The folder of large golden files, which not every checkout has beside it.
fn shared() -> Option<PathBuf> {
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
