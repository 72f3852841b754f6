//! Vocabularies that contradict themselves are refused, and the message names the key.

#![allow(clippy::unwrap_used)]

use minfer_text::{SpecialIds, Specials, TokenKind, Tokenizer, TokenizerModel, VocabSource};

fn bpe() -> VocabSource<'static> {
    VocabSource {
        tokens: vec!["a", "b", "ab", "", "<x>"],
        kinds: Some(vec![
            TokenKind::Normal,
            TokenKind::Normal,
            TokenKind::Normal,
            TokenKind::Unused,
            TokenKind::Control,
        ]),
        merges: Some(vec!["a b"]),
        pre: Some("gpt-2"),
        ..VocabSource::default()
    }
}

fn spm() -> VocabSource<'static> {
    VocabSource {
        model: TokenizerModel::Spm,
        tokens: vec!["<unk>", "▁", "a", "▁a", "<0x62>"],
        kinds: Some(vec![
            TokenKind::Unknown,
            TokenKind::Normal,
            TokenKind::Normal,
            TokenKind::Normal,
            TokenKind::Byte,
        ]),
        scores: Some(vec![0.0, -3.0, -2.0, -1.0, 0.0]),
        ids: SpecialIds { unknown: Some(0), ..SpecialIds::default() },
        ..VocabSource::default()
    }
}

#[track_caller]
fn refused(source: &VocabSource<'_>, words: &str) {
    let message = Tokenizer::new(source).unwrap_err().to_string();
    assert!(message.contains(words) && !message.contains('\n'), "{message}");
}

#[test]
fn the_small_vocabularies_work() {
    let bpe = Tokenizer::new(&bpe()).unwrap();
    assert_eq!(bpe.encode("ab<x>", Specials::ALL).unwrap(), [2, 4]);
    assert!(bpe.encode("ab<x>", Specials::NONE).is_err());
    let spm = Tokenizer::new(&spm()).unwrap();
    assert_eq!(spm.encode("a b", Specials::ALL).unwrap(), [3, 1, 4]);
    assert_eq!(spm.encode("<unk>é", Specials::PARSE).unwrap(), [0, 1, 0]);
}

#[test]
fn contradictions_are_refused() {
    refused(&VocabSource { tokens: Vec::new(), ..bpe() }, "tokenizer.ggml.tokens");
    refused(
        &VocabSource { kinds: Some(vec![TokenKind::Normal]), ..bpe() },
        "tokenizer.ggml.token_type has 1",
    );
    refused(&VocabSource { merges: None, ..bpe() }, "tokenizer.ggml.merges");
    for merge in ["ab", "a ", " b", ""] {
        refused(&VocabSource { merges: Some(vec![merge]), ..bpe() }, "merge of two pieces");
    }
    refused(&VocabSource { merges: Some(vec!["b a"]), ..bpe() }, "not in tokenizer.ggml.tokens");
    // The first of several errors is the one that is told, wherever it shows.
    let merges = |first, then| Some([vec!["a b"; 40], vec![first, then]].concat());
    refused(
        &VocabSource { merges: merges("ab c", "ab"), tokens: vec!["a", "b", "ab", "abc", "<x>"], ..bpe() },
        "tokenizer.ggml.merges[40]",
    );
    refused(&VocabSource { merges: merges("ab", "b a"), ..bpe() }, "tokenizer.ggml.merges[40]");
    refused(&VocabSource { pre: Some("zzz\u{1b}"), ..bpe() }, r#""zzz\u{1b}""#);
    refused(&VocabSource { scores: Some(vec![0.0]), ..spm() }, "tokenizer.ggml.scores has 1");
    refused(&VocabSource { scores: None, ..spm() }, "tokenizer.ggml.scores");
    refused(&VocabSource { scores: Some(vec![f32::NAN; 5]), ..spm() }, "tokenizer.ggml.scores[0]");
    refused(&VocabSource { add_bos: Some(true), ..bpe() }, "bos_token_id");
    let ids = SpecialIds { bos: Some(1 << 31), ..SpecialIds::default() };
    refused(&VocabSource { ids, ..bpe() }, "bos_token_id is 2147483648");
}

/// A word of a megabyte and text full of special tokens are linear work, or nearly.
#[test]
fn long_words_end() {
    let spm = Tokenizer::new(&spm()).unwrap();
    assert_eq!(spm.encode(&"a".repeat(1 << 20), Specials::ALL).unwrap().len(), 1 << 20);
    let bpe = Tokenizer::new(&bpe()).unwrap();
    assert_eq!(bpe.encode(&"ab".repeat(1 << 19), Specials::ALL).unwrap().len(), 1 << 19);
    assert_eq!(bpe.encode(&"<x>".repeat(1 << 18), Specials::ALL).unwrap().len(), 1 << 18);
}
