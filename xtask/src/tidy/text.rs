//! Just enough of Rust's lexer to tell code from comments and literals.

/// `source` with comments and the insides of literals replaced by spaces, line by line as long as before.
///
/// A lifetime isn't a character, `'"'` isn't the beginning of a string, and block comments nest.
pub(super) fn code_only(source: &str) -> String {
    let mut rest = source;
    let mut code = String::with_capacity(source.len());
    let mut previous = ' ';
    while let Some(c) = rest.chars().next() {
        let blank = match c {
            '/' if rest.starts_with("//") => Some((0, line_comment(rest), 0)),
            '/' if rest.starts_with("/*") => Some((0, block_comment(rest), 0)),
            '"' => Some((1, string(rest), 1)),
            '\'' => character(rest).map(|length| (1, length, 1)),
            'r' | 'b' | 'c' if !is_word(previous) => raw_string(rest),
            _ => None,
        };
        match blank {
            Some((open, length, close)) => {
                let (token, tail) = rest.split_at(length);
                let inside = open..length.saturating_sub(close).max(open);
                code.extend(
                    token.char_indices().map(|(i, c)| if inside.contains(&i) && c != '\n' { ' ' } else { c }),
                );
                (rest, previous) = (tail, ' ');
            }
            None => {
                code.push(c);
                (rest, previous) = (&rest[c.len_utf8()..], c);
            }
        }
    }
    code
}

/// Whether this may be a part of an identifier.
pub(super) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Where `word` stands in `code` with no identifier touching either end of it.
pub(super) fn word_positions<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        let before = code[..at].chars().next_back().is_some_and(is_word);
        let after = code[at + word.len()..].chars().next().is_some_and(is_word);
        !before && !after
    })
}

/// The position after the bracket that closes the first `{` at or after `from`; `None` if a `;` comes first.
pub(super) fn block_end(code: &str, from: usize) -> Option<usize> {
    let mut braces = 0;
    let mut others = 0;
    for (i, c) in code[from..].char_indices() {
        match c {
            '(' | '[' => others += 1,
            ')' | ']' => others -= 1,
            ';' if braces == 0 && others == 0 => return None,
            '{' => braces += 1,
            '}' if braces == 1 => return Some(from + i + 1),
            '}' => braces -= 1,
            _ => {}
        }
    }
    None
}

/// The line of a position, from 1.
pub(super) fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

fn line_comment(rest: &str) -> usize {
    rest.find('\n').unwrap_or(rest.len())
}

fn block_comment(rest: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

fn string(rest: &str) -> usize {
    let mut escaped = false;
    for (i, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return i + 1,
            _ => {}
        }
    }
    rest.len()
}

/// The length of a character literal; `None` for a lifetime or a label.
fn character(rest: &str) -> Option<usize> {
    let inside = &rest[1..];
    let first = inside.chars().next()?;
    if first == '\\' {
        let escape = 1 + inside[1..].chars().next()?.len_utf8();
        return inside[escape..].find('\'').map(|end| 1 + escape + end + 1);
    }
    inside[first.len_utf8()..].starts_with('\'').then(|| 1 + first.len_utf8() + 1)
}

/// `r"…"`, `r#"…"#`, and the same with a `b` or `c` in front: opening, whole length, closing.
fn raw_string(rest: &str) -> Option<(usize, usize, usize)> {
    let after = rest.strip_prefix(['b', 'c']).unwrap_or(rest).strip_prefix('r')?;
    let hashes = after.len() - after.trim_start_matches('#').len();
    after[hashes..].strip_prefix('"')?;
    let open = rest.len() - after.len() + hashes + 1;
    let closing = format!("\"{}", "#".repeat(hashes));
    let end = rest[open..].find(&closing).map_or(rest.len(), |end| open + end + closing.len());
    Some((open, end, closing.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blank() {
        for (source, code) in [
            ("a // unsafe\nb", "a          \nb"),
            ("a /* x /* y */ z */ b", "a                   b"),
            (r#"f("un\"safe")"#, r#"f("        ")"#),
            (r###"f(r#"a"b"#)"###, r###"f(r#"   "#)"###),
            ("f(b\"x\", br\"y\")", "f(b\" \", br\" \")"),
            ("'\"' 'a 'b' '\\'' '\\u{1b}'", "' ' 'a ' ' '  ' '      '"),
            ("bar\"x\"", "bar\" \""),
            ("x: &'static str = \"é\";", "x: &'static str = \" \";"),
        ] {
            assert_eq!(code_only(source), code, "{source}");
        }
    }

    #[test]
    fn a_block_ends_at_its_own_bracket() {
        let code = "fn f(x: [u8; 3]) { if a { b } } fn g();";
        assert_eq!(block_end(code, 0), Some(31));
        assert_eq!(block_end(code, 32), None);
        assert_eq!(line_of("a\nb\nc", 4), 3);
        assert_eq!(word_positions("unsafe unsafely a_unsafe unsafe{", "unsafe").collect::<Vec<_>>(), [0, 25]);
    }
}
