//! What the scanners share.

use super::class::Class;

/// The first character at `at`, if there is one.
#[inline]
pub(super) fn char_at(text: &str, at: usize) -> Option<char> {
    text[at..].chars().next()
}

/// The end of the run of characters from `at` on that `accepts`.
#[inline]
pub(super) fn run(text: &str, at: usize, accepts: impl Fn(char) -> bool) -> usize {
    text[at..].find(|c| !accepts(c)).map_or(text.len(), |n| at + n)
}

/// [`run`] over characters of one of the classes.
#[inline]
pub(super) fn run_of(text: &str, at: usize, classes: Class) -> usize {
    run(text, at, |c| Class::of(c).meets(classes))
}

/// [`run`] over characters of none of the classes.
#[inline]
pub(super) fn run_outside(text: &str, at: usize, classes: Class) -> usize {
    run(text, at, |c| !Class::of(c).meets(classes))
}

/// Whether the character is CR or LF.
pub(super) fn is_newline(c: char) -> bool {
    c == '\r' || c == '\n'
}

/// `\s+(?!\S)|\s+` at the start of `text`, which begins with white space: all of the run at the end of the text, else all
/// but its last character, which goes with the word after it, but at least one.
pub(super) fn spaces(text: &str) -> usize {
    let end = run_of(text, 0, Class::SPACE);
    if end == text.len() {
        return end;
    }
    let last = text[..end].char_indices().next_back().map_or(0, |(at, _)| at);
    if last == 0 { end } else { last }
}

/// `\s*[\r\n]+|\s+(?!\S)|\s+`: a run of white space up to its last newline, else [`spaces`].
pub(super) fn lines_or_spaces(text: &str) -> usize {
    let end = run_of(text, 0, Class::SPACE);
    match text[..end].rfind(is_newline) {
        Some(at) => at + 1,
        None => spaces(text),
    }
}

/// ` ?X+` where X is a character of none of the classes: the end of the run, if it has any.
pub(super) fn spaced_run_outside(text: &str, classes: Class) -> Option<usize> {
    let start = usize::from(text.starts_with(' '));
    let end = run_outside(text, start, classes);
    (end > start).then_some(end)
}

/// `\p{N}{1,most}`: the end of the numbers at the start of `text`, if there are any.
pub(super) fn numbers(text: &str, most: usize) -> Option<usize> {
    let n: usize =
        text.chars().take(most).take_while(|&c| Class::of(c).meets(Class::NUMBER)).map(char::len_utf8).sum();
    (n > 0).then_some(n)
}

/// `'s|'t|'re|'ve|'m|'ll|'d` at the start of `text`: its length.
pub(super) fn contraction(text: &str, any_case: bool) -> Option<usize> {
    let rest = text.strip_prefix('\'')?;
    // U+017F is an s when case doesn't matter.
    let letter = |c: char| match c {
        'ſ' if any_case => 's',
        c if any_case => c.to_ascii_lowercase(),
        c => c,
    };
    let mut chars = rest.chars();
    let first = chars.next()?;
    match (letter(first), chars.next().map(letter)) {
        ('s' | 't' | 'm' | 'd', _) => Some(1 + first.len_utf8()),
        ('r' | 'v', Some('e')) | ('l', Some('l')) => Some(3),
        _ => None,
    }
}
