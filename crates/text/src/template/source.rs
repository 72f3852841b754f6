//! The text of a template, made fit for the engine.

use std::borrow::Cow;

use super::Error;

/// The longest template that is compiled, in bytes. Published ones have up to some dozens of KiB. The bound keeps the
/// compiler's memory, its time and its recursion over long chains of operators within what is provided.
pub(super) const MAX_LEN: usize = 64 << 10;

/// A template's text, or how long it is if it is too long to be used.
#[derive(Debug, Clone)]
pub(super) struct Source(Result<String, usize>);

impl Source {
    pub(super) fn new(text: &str) -> Self {
        let text =
            if text.len() > MAX_LEN { Cow::Owned(without_comments(text)) } else { Cow::Borrowed(text) };
        if text.len() > MAX_LEN {
            return Self(Err(text.len()));
        }
        let mut text = without_generation_tags(&text);
        text.shrink_to_fit();
        Self(Ok(text))
    }

    pub(super) fn text(&self) -> Result<&str, Error> {
        match &self.0 {
            Ok(text) => Ok(text),
            Err(len) => Err(Error::TooLong { len: *len, most: MAX_LEN }),
        }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, String::capacity)
    }

    /// What [`Self::heap_bytes`] can't exceed for a text of this length: no rewriting makes it longer.
    pub(super) fn heap_bound(len: usize) -> usize {
        len.min(MAX_LEN)
    }
}

/// Empties the comments, keeping their signs for white space control.
fn without_comments(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, comment)) = rest.split_once("{#") {
        let Some((body, after)) = comment.split_once("#}") else { break };
        out.push_str(before);
        out.push_str("{#");
        let sign = |c: Option<char>| c.filter(|c| matches!(c, '-' | '+'));
        out.extend(sign(body.chars().next()));
        out.push(' ');
        out.extend(sign(body.chars().next_back()));
        out.push_str("#}");
        rest = after;
    }
    out.push_str(rest);
    out
}

/// Makes `{% generation %}` … `{% endgeneration %}`, which mark the assistant's part for training, mean nothing.
fn without_generation_tags(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at + 2);
        out.push_str(before);
        let word_at = tag.find(|c: char| !c.is_whitespace() && !matches!(c, '-' | '+')).unwrap_or(tag.len());
        let (signs, word) = tag.split_at(word_at);
        out.push_str(signs);
        rest = word;
        for (name, meaningless) in [("generation", "if true"), ("endgeneration", "endif")] {
            if let Some(after) = word.strip_prefix(name).filter(|after| ends_tag(after)) {
                out.push_str(meaningless);
                rest = after;
            }
        }
    }
    out.push_str(rest);
    out
}

fn ends_tag(text: &str) -> bool {
    let text = text.trim_start();
    text.strip_prefix(['-', '+']).unwrap_or(text).starts_with("%}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generation_tags_become_meaningless() {
        assert_eq!(
            without_generation_tags("a{%- generation -%}b{%endgeneration%}c{% generations %}"),
            "a{%- if true -%}b{%endif%}c{% generations %}"
        );
        assert_eq!(without_generation_tags("{% for x in y %}{%"), "{% for x in y %}{%");
    }

    #[test]
    fn long_comments_dont_count() {
        let text = format!("{{#- {} -#}}x", "y".repeat(MAX_LEN));
        assert_eq!(Source::new(&text).text().unwrap(), "{#- -#}x");
        assert!(matches!(Source::new(&"x".repeat(MAX_LEN + 1)).text(), Err(Error::TooLong { .. })));
    }
}
