//! GPT-2's rule, and the passes that other models put before or after it.

use super::class::Class;
use super::scan::{char_at, contraction, run, run_of, spaced_run_outside, spaces};

/// One pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
    Words,
    /// `\p{N}`
    EachNumber,
    /// `\p{N}+`
    NumberRuns,
    /// `[0-9][0-9][0-9]`
    ThreeDigits,
    /// ``[\p{P}\$\+<=>\^~\|`]+``, the backtick or not
    Punctuation {
        /// Whether the backtick counts.
        backtick: bool,
    },
}

impl Stage {
    /// The length of the first piece: a match, or the text up to the next match.
    pub(super) fn next(self, text: &str) -> usize {
        match self {
            Self::Words => word(text),
            Self::EachNumber => match char_at(text, 0) {
                Some(c) if is_number(c) => c.len_utf8(),
                _ => run(text, 0, |c| !is_number(c)),
            },
            Self::NumberRuns => match run(text, 0, is_number) {
                0 => run(text, 0, |c| !is_number(c)),
                n => n,
            },
            Self::ThreeDigits => three_digits(text),
            Self::Punctuation { backtick } => {
                let accepts = |c| is_punctuation(c) || (backtick && c == '`');
                match run(text, 0, accepts) {
                    0 => run(text, 0, |c| !accepts(c)),
                    n => n,
                }
            }
        }
    }
}

fn is_number(c: char) -> bool {
    Class::of(c).meets(Class::NUMBER)
}

fn is_punctuation(c: char) -> bool {
    Class::of(c).meets(Class::PUNCTUATION) || matches!(c, '$' | '+' | '<' | '=' | '>' | '^' | '~' | '|')
}

fn word(text: &str) -> usize {
    if let Some(n) = contraction(text, false) {
        return n;
    }
    let start = usize::from(text.starts_with(' '));
    let class = char_at(text, start).map(Class::of);
    for classes in [Class::LETTER, Class::NUMBER] {
        if class.is_some_and(|class| class.meets(classes)) {
            return run_of(text, start, classes);
        }
    }
    spaced_run_outside(text, Class::SPACE.or(Class::LETTER).or(Class::NUMBER)).unwrap_or_else(|| spaces(text))
}

fn three_digits(text: &str) -> usize {
    let mut digits = 0;
    for (at, byte) in text.bytes().enumerate() {
        digits = if byte.is_ascii_digit() { digits + 1 } else { 0 };
        if digits == 3 {
            return if at == 2 { 3 } else { at - 2 };
        }
    }
    text.len()
}
