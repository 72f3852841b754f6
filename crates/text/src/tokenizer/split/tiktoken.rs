//! The rule of GPT-4's first tokenizer, which Llama 3, Qwen and many others took over with small changes.

use super::class::Class;
use super::scan::{
    char_at, contraction, is_newline, lines_or_spaces, numbers, run, run_of, spaced_run_outside,
};

/// `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
/// and its variants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rule {
    /// The longest run of numbers.
    pub(super) digits: usize,
    /// Whether words are `[\p{L}\p{M}]+` instead of `\p{L}+`.
    pub(super) marks: bool,
    /// Whether newlines stay with the punctuation before them.
    pub(super) newlines: bool,
}

impl Rule {
    /// The length of the first word.
    pub(super) fn next(self, text: &str) -> usize {
        contraction(text, true)
            .or_else(|| self.word(text))
            .or_else(|| numbers(text, self.digits))
            .or_else(|| self.punctuation(text))
            .unwrap_or_else(|| lines_or_spaces(text))
    }

    fn letters(self) -> Class {
        if self.marks { Class::LETTER.or(Class::MARK) } else { Class::LETTER }
    }

    fn word(self, text: &str) -> Option<usize> {
        let first = char_at(text, 0)?;
        let class = Class::of(first);
        let start = if class.meets(self.letters()) || class.meets(Class::NUMBER) || is_newline(first) {
            0
        } else {
            first.len_utf8()
        };
        let end = run_of(text, start, self.letters());
        (end > start).then_some(end)
    }

    fn punctuation(self, text: &str) -> Option<usize> {
        let end = spaced_run_outside(text, Class::SPACE.or(Class::NUMBER).or(self.letters()))?;
        Some(if self.newlines { run(text, end, is_newline) } else { end })
    }
}
