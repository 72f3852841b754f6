//! Pre-tokenizers: how byte-level BPE cuts a text into words before merging.
//!
//! A model is trained with one rule, a regular expression or several in turn, which `tokenizer.ggml.pre` names. Each rule is
//! written out here as a scanner: it runs in one pass, and needs no regex engine. A rule that isn't known is refused, since a
//! wrong one gives wrong ids without any sign of it.

mod class;
mod deepseek;
mod gpt2;
mod o200k;
mod scan;
mod tiktoken;

use gpt2::Stage as Gpt2Stage;

/// A pre-tokenizer, with what its family does beyond splitting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PreTokenizer {
    stages: &'static [Stage],
    /// A word that is a token as it stands isn't merged.
    pub(crate) whole_words: bool,
    /// BOS is added unless the file says otherwise.
    pub(crate) add_bos: bool,
}

/// One pass over a text; the pieces it finds go through the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Gpt2(Gpt2Stage),
    Tiktoken(tiktoken::Rule),
    O200k(o200k::Rule),
    DeepSeek(deepseek::Stage),
}

impl Stage {
    /// The length in bytes of the first piece of `text`, which isn't empty; at least one character.
    fn next(self, text: &str) -> usize {
        match self {
            Self::Gpt2(stage) => stage.next(text),
            Self::Tiktoken(rule) => rule.next(text),
            Self::O200k(rule) => rule.next(text),
            Self::DeepSeek(stage) => stage.next(text),
        }
    }
}

const GPT2: &[Stage] = &[Stage::Gpt2(Gpt2Stage::Words)];
const DIGITS_GPT2: &[Stage] = &[Stage::Gpt2(Gpt2Stage::EachNumber), Stage::Gpt2(Gpt2Stage::Words)];
const FALCON: &[Stage] = &[
    Stage::Gpt2(Gpt2Stage::Punctuation { backtick: true }),
    Stage::Gpt2(Gpt2Stage::Words),
    Stage::Gpt2(Gpt2Stage::ThreeDigits),
];
const DEFAULT: &[Stage] = &[
    Stage::Gpt2(Gpt2Stage::Punctuation { backtick: false }),
    Stage::Gpt2(Gpt2Stage::Words),
    Stage::Gpt2(Gpt2Stage::NumberRuns),
    Stage::Gpt2(Gpt2Stage::ThreeDigits),
];
const LLAMA3: &[Stage] = &[Stage::Tiktoken(tiktoken::Rule { digits: 3, marks: false, newlines: true })];
const QWEN2: &[Stage] = &[Stage::Tiktoken(tiktoken::Rule { digits: 1, marks: false, newlines: true })];
const QWEN35: &[Stage] = &[Stage::Tiktoken(tiktoken::Rule { digits: 1, marks: true, newlines: true })];
const SEED_CODER: &[Stage] = &[Stage::Tiktoken(tiktoken::Rule { digits: 1, marks: false, newlines: false })];
const GPT4O: &[Stage] = &[Stage::O200k(o200k::Rule { digits: 3, contractions: true })];
const TEKKEN: &[Stage] = &[Stage::O200k(o200k::Rule { digits: 1, contractions: false })];
const DEEPSEEK_V3: &[Stage] = &[
    Stage::DeepSeek(deepseek::Stage::ThreeNumbers),
    Stage::DeepSeek(deepseek::Stage::Ideographs),
    Stage::DeepSeek(deepseek::Stage::Words),
];

/// Every known name of `tokenizer.ggml.pre`, by rule.
const NAMES: &[(&[&str], PreTokenizer)] = &[
    (&["default"], plain(DEFAULT)),
    (
        &[
            "gpt-2",
            "phi-2",
            "mpt",
            "olmo",
            "jais",
            "trillion",
            "granite-docling",
            "exaone4",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "jina-es",
            "jina-de",
            "jina-v2-es",
            "jina-v2-de",
        ],
        plain(GPT2),
    ),
    (
        &["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"],
        plain(DIGITS_GPT2),
    ),
    (&["falcon"], plain(FALCON)),
    (
        &["llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"],
        PreTokenizer { stages: LLAMA3, whole_words: true, add_bos: true },
    ),
    (&["dbrx", "smaug-bpe", "glm4", "chatglm-bpe"], plain(LLAMA3)),
    (
        &[
            "qwen2",
            "deepseek-r1-qwen",
            "stablelm2",
            "megrez",
            "hunyuan",
            "solar-open",
            "grok-2",
            "kormo",
            "f2llmv2",
        ],
        plain(QWEN2),
    ),
    (&["qwen35"], plain(QWEN35)),
    (&["seed-coder"], plain(SEED_CODER)),
    (&["gpt-4o", "llama4", "kanana2", "minimax-m2"], plain(GPT4O)),
    (&["tekken"], PreTokenizer { stages: TEKKEN, whole_words: true, add_bos: true }),
    (&["deepseek-v3", "hunyuan-dense", "joyai-llm"], plain(DEEPSEEK_V3)),
];

const fn plain(stages: &'static [Stage]) -> PreTokenizer {
    PreTokenizer { stages, whole_words: false, add_bos: false }
}

impl PreTokenizer {
    /// The rule of a file without `tokenizer.ggml.pre`.
    pub(crate) const DEFAULT: Self = plain(DEFAULT);

    /// The rule that `tokenizer.ggml.pre` names, if it is known.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        NAMES.iter().find(|(names, _)| names.contains(&name)).map(|&(_, rule)| rule)
    }

    /// All known names, with commas between.
    pub(crate) fn known_names() -> String {
        let names: Vec<&str> = NAMES.iter().flat_map(|(names, _)| names.iter().copied()).collect();
        names.join(", ")
    }

    /// Gives every word of `text` to `emit`, in order; together they are the text.
    pub(crate) fn split(self, text: &str, emit: &mut dyn FnMut(&str)) {
        split(self.stages, text, emit);
    }
}

fn split(stages: &[Stage], text: &str, emit: &mut dyn FnMut(&str)) {
    let Some((stage, rest)) = stages.split_first() else {
        return emit(text);
    };
    let mut text = text;
    while !text.is_empty() {
        let (piece, tail) = text.split_at(stage.next(text));
        split(rest, piece, emit);
        text = tail;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(name: &str, text: &str) -> Vec<String> {
        let mut words = Vec::new();
        PreTokenizer::from_name(name).unwrap().split(text, &mut |word| words.push(word.to_owned()));
        words
    }

    #[test]
    fn gpt2_words() {
        assert_eq!(
            words("gpt-2", "I'll go  12 km!?\n\n x"),
            ["I", "'ll", " go", " ", " 12", " km", "!?", "\n\n", " x"]
        );
        assert_eq!(words("gpt-2", "end  "), ["end", "  "]);
        assert_eq!(words("gpt-2", "I'LL"), ["I", "'", "LL"]);
    }

    #[test]
    fn single_digits() {
        assert_eq!(words("smollm", "a  10"), ["a", "  ", "1", "0"]);
        assert_eq!(words("qwen2", "a 10"), ["a", " ", "1", "0"]);
    }

    #[test]
    fn digits_in_threes() {
        assert_eq!(words("llama-bpe", "12345 6"), ["123", "45", " ", "6"]);
        assert_eq!(words("default", "v12345"), ["v", "123", "45"]);
        assert_eq!(words("falcon", "`a` 1234"), ["`", "a", "`", " ", "123", "4"]);
    }

    #[test]
    fn newlines_stay_with_punctuation() {
        assert_eq!(words("llama-bpe", "x;\n\n  y \n z"), ["x", ";\n\n", " ", " y", " \n", " z"]);
        assert_eq!(words("seed-coder", "x;\n\ny"), ["x", ";", "\n\n", "y"]);
    }

    #[test]
    fn contractions_in_any_case() {
        assert_eq!(words("llama-bpe", "WE'RE it'S a'ſx"), ["WE", "'RE", " it", "'S", " a", "'ſ", "x"]);
    }

    #[test]
    fn marks_belong_to_words() {
        assert_eq!(words("qwen35", "कि x"), ["कि", " x"]);
        assert_eq!(words("qwen2", "कि x"), ["क", "ि", " x"]);
    }

    #[test]
    fn case_splits_words() {
        assert_eq!(words("gpt-4o", "HTTPServer camelCase it's"), ["HTTPServer", " camel", "Case", " it's"]);
        assert_eq!(words("gpt-4o", "AB中CD"), ["AB中", "CD"]);
        assert_eq!(words("tekken", "it's 12"), ["it", "'s", " ", "1", "2"]);
    }

    #[test]
    fn deepseek() {
        assert_eq!(
            words("deepseek-v3", "in 2024, 你好!x .y"),
            ["in", " ", "202", "4", ",", " ", "你好", "!x", " .", "y"]
        );
    }

    #[test]
    fn unknown_names_are_unknown() {
        assert_eq!(PreTokenizer::from_name("no-such"), None);
        assert!(PreTokenizer::known_names().starts_with("default, gpt-2"));
    }
}
