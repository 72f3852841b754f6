//! The rule of GPT-4o's tokenizer, which cuts words where the case changes.

use super::class::Class;
use super::scan::{char_at, contraction, is_newline, lines_or_spaces, numbers, run, spaced_run_outside};

/// With U = `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]` and L = `[\p{Ll}\p{Lm}\p{Lo}\p{M}]`:
/// `[^\r\n\p{L}\p{N}]?U*L+C|[^\r\n\p{L}\p{N}]?U+L*C|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
/// where C is `(?i:'s|'t|'re|'ve|'m|'ll|'d)?`, or nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rule {
    /// The longest run of numbers.
    pub(super) digits: usize,
    /// Whether a contraction stays with its word.
    pub(super) contractions: bool,
}

impl Rule {
    /// The length of the first word.
    pub(super) fn next(self, text: &str) -> usize {
        self.word(text)
            .or_else(|| numbers(text, self.digits))
            .or_else(|| punctuation(text))
            .unwrap_or_else(|| lines_or_spaces(text))
    }

    fn word(self, text: &str) -> Option<usize> {
        let first = char_at(text, 0)?;
        let prefix = if Class::of(first).meets(Class::LETTER.or(Class::NUMBER)) || is_newline(first) {
            0
        } else {
            first.len_utf8()
        };
        let end = falling(text, prefix)
            .or_else(|| falling(text, 0))
            .or_else(|| rising(text, prefix))
            .or_else(|| rising(text, 0))?;
        let tail = if self.contractions { contraction(&text[end..], true) } else { None };
        Some(end + tail.unwrap_or(0))
    }
}

fn is_upper_side(c: char) -> bool {
    let class = Class::of(c);
    class.meets(Class::LETTER.or(Class::MARK)) && !class.meets(Class::LOWER)
}

fn is_lower_side(c: char) -> bool {
    let class = Class::of(c);
    class.meets(Class::LETTER.or(Class::MARK)) && !class.meets(Class::UPPER)
}

/// The end of `U*L+` from `at` on.
fn falling(text: &str, at: usize) -> Option<usize> {
    let upper = run(text, at, is_upper_side);
    let lower = run(text, upper, is_lower_side);
    if lower > upper {
        return Some(lower);
    }
    // Nothing follows the run; give back as little of it as makes an L: caseless letters and marks are both.
    let last = text[at..upper].char_indices().rev().find(|&(_, c)| is_lower_side(c));
    last.map(|(offset, c)| at + offset + c.len_utf8())
}

/// The end of `U+L*` from `at` on. Only asked where [`falling`] found nothing, so that L* is empty.
fn rising(text: &str, at: usize) -> Option<usize> {
    let end = run(text, at, is_upper_side);
    (end > at).then_some(end)
}

fn punctuation(text: &str) -> Option<usize> {
    let end = spaced_run_outside(text, Class::SPACE.or(Class::LETTER).or(Class::NUMBER))?;
    Some(run(text, end, |c| is_newline(c) || c == '/'))
}
