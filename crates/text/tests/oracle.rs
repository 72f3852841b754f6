//! Byte-level BPE against the crate `tokenizers`, built from the same lists.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use minfer_gguf::Index;
use minfer_text::{Specials, Tokenizer};
use proptest::prelude::*;
use tokenizers::models::bpe::BPE;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{PreTokenizerWrapper, SplitDelimiterBehavior};

const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Our tokenizer and theirs, with GPT-2's vocabulary and a rule that need not be GPT-2's.
struct Pair {
    ours: Tokenizer,
    theirs: tokenizers::Tokenizer,
}

fn pair(index: &Index, pre: &str, their_pre: PreTokenizerWrapper) -> Pair {
    let mut source = minfer_text::VocabSource::from_metadata(index.metadata()).unwrap();
    source.pre = Some(pre);
    let vocab = (0u32..).zip(&source.tokens).map(|(id, text)| ((*text).to_owned(), id)).collect::<Vec<_>>();
    let merges = source.merges.iter().flatten().map(|merge| merge.split_once(' ').unwrap());
    let merges = merges.map(|(a, b)| (a.to_owned(), b.to_owned())).collect();
    let bpe = BPE::builder()
        .vocab_and_merges(vocab.into_iter().collect::<tokenizers::models::bpe::Vocab>(), merges);
    let mut theirs = tokenizers::Tokenizer::new(bpe.build().unwrap());
    theirs.with_pre_tokenizer(Some(their_pre));
    Pair { ours: Tokenizer::new(&source).unwrap(), theirs }
}

fn regex(pattern: &str) -> PreTokenizerWrapper {
    let split =
        Split::new(SplitPattern::Regex(pattern.to_owned()), SplitDelimiterBehavior::Isolated, false).unwrap();
    Sequence::new(vec![split.into(), ByteLevel::new(false, false, false).into()]).into()
}

fn pairs() -> Vec<Pair> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/ggml-vocab-gpt-2.gguf");
    let index = Index::open(&path).unwrap();
    let gpt2 = || ByteLevel::new(false, false, true).into();
    let digits = Sequence::new(vec![Digits::new(true).into(), gpt2()]);
    vec![
        pair(&index, "gpt-2", gpt2()),
        pair(&index, "smollm", digits.into()),
        pair(&index, "dbrx", regex(LLAMA3)),
        pair(&index, "qwen2", regex(&LLAMA3.replace("{1,3}", ""))),
        pair(
            &index,
            "qwen35",
            regex(
                &LLAMA3
                    .replace("{1,3}", "")
                    .replace(r"?\p{L}+", r"?[\p{L}\p{M}]+")
                    .replace(r"[^\s\p{L}", r"[^\s\p{L}\p{M}"),
            ),
        ),
        pair(&index, "gpt-4o", regex(GPT4O)),
    ]
}

/// Characters of every kind that rules tell apart, none so new that tables of Unicode differ on it.
fn texts() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "[a-zA-Z]{1,6}",
        "[0-9٣Ⅷ½]{1,5}",
        "[ \t\r\n\u{A0}\u{3000}\u{85}]{1,4}",
        "'(s|S|t|re|RE|ve|m|ll|LL|d|x)",
        "[éßſǅʰДд中字あア한עربไทय]{1,4}",
        "[\u{301}\u{93F}\u{20DD}]{1,2}",
        "[!-/:-@\\[-`{-~«»—…€±©😀]{1,3}",
        "[\u{0}\u{7F}\u{200B}\u{E000}]",
    ];
    prop::collection::vec(piece, 0..20).prop_map(|pieces| pieces.concat())
}

#[test]
fn ids_are_equal_on_any_text() {
    let pairs = pairs();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(200));
    runner
        .run(&texts(), |text| {
            for (i, pair) in pairs.iter().enumerate() {
                let ours = pair.ours.encode(&text, Specials::NONE).unwrap();
                let theirs = pair.theirs.encode(text.as_str(), false).unwrap();
                prop_assert_eq!(&ours[..], theirs.get_ids(), "rule {}", i);
                let bytes: Vec<u8> = ours.iter().flat_map(|&id| pair.ours.token_bytes(id)).copied().collect();
                prop_assert_eq!(&bytes[..], text.as_bytes());
            }
            Ok(())
        })
        .unwrap();
}
