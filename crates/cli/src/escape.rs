//! Text that comes from a file, made safe for a terminal.

use std::borrow::Cow;
use std::fmt::Write;

/// `text` on one line: every control character, line breaks too, as an escape such as `\n` or `\u{1b}`.
pub(crate) fn line(text: &str) -> Cow<'_, str> {
    escape(text, &[])
}

/// `text` with its line breaks and tabs, every other control character as an escape.
pub(crate) fn lines(text: &str) -> Cow<'_, str> {
    escape(text, &['\n', '\t'])
}

fn escape<'a>(text: &'a str, keep: &[char]) -> Cow<'a, str> {
    let acts = |c: char| (c.is_control() || is_reordering(c)) && !keep.contains(&c);
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if acts(c) {
            let _ = write!(safe, "{}", c.escape_default());
        } else {
            safe.push(c);
        }
    }
    Cow::Owned(safe)
}

/// Characters that change the order in which others are shown, and so can make a name look like another.
fn is_reordering(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_is_borrowed() {
        assert!(matches!(line("grüße, 世界 \\ \""), Cow::Borrowed(_)));
    }

    #[test]
    fn control_characters_become_escapes() {
        assert_eq!(line("a\x1b[31m\n\u{9b}b"), "a\\u{1b}[31m\\n\\u{9b}b");
        assert_eq!(line("llama\u{202e}fugg"), "llama\\u{202e}fugg");
    }

    #[test]
    fn lines_keep_their_breaks() {
        assert_eq!(lines("a\n\tb\x07"), "a\n\tb\\u{7}");
    }
}
