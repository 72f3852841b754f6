//! The passes of DeepSeek V3's tokenizer.

use super::class::Class;
use super::scan::{char_at, is_newline, lines_or_spaces, numbers, run, run_of};

const LETTERS: Class = Class::LETTER.or(Class::MARK);
const SIGNS: Class = Class::PUNCTUATION.or(Class::SYMBOL);

/// One pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// `\p{N}{1,3}`
    ThreeNumbers,
    /// `[一-龥぀-ゟ゠-ヿ]+`
    Ideographs,
    /// ``[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+``
    Words,
}

impl Stage {
    /// The length of the first piece: a match, or the text up to the next match.
    pub(super) fn next(self, text: &str) -> usize {
        match self {
            Self::ThreeNumbers => {
                numbers(text, 3).unwrap_or_else(|| run(text, 0, |c| !Class::of(c).meets(Class::NUMBER)))
            }
            Self::Ideographs => match run(text, 0, is_ideograph) {
                0 => run(text, 0, |c| !is_ideograph(c)),
                n => n,
            },
            Self::Words => word(text).unwrap_or_else(|| {
                text.char_indices()
                    .map(|(at, _)| at)
                    .find(|&at| word(&text[at..]).is_some())
                    .unwrap_or(text.len())
            }),
        }
    }
}

fn is_ideograph(c: char) -> bool {
    matches!(c, '\u{4E00}'..='\u{9FA5}' | '\u{3040}'..='\u{30FF}')
}

/// The length of the match at the start of `text`; numbers and control characters have none.
fn word(text: &str) -> Option<usize> {
    let first = char_at(text, 0)?;
    let class = Class::of(first);
    if first.is_ascii_punctuation() {
        let end = run(text, 1, |c| c.is_ascii_alphabetic());
        if end > 1 {
            return Some(end);
        }
    }
    let start = if class.meets(LETTERS.or(SIGNS)) || is_newline(first) { 0 } else { first.len_utf8() };
    let end = run_of(text, start, LETTERS);
    if end > start {
        return Some(end);
    }
    let start = usize::from(first == ' ');
    let end = run_of(text, start, SIGNS);
    if end > start {
        return Some(run(text, end, is_newline));
    }
    class.meets(Class::SPACE).then(|| lines_or_spaces(text))
}
