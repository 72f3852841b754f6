//! One Rust file, and what it must and must not have.

use super::text::{block_end, code_only, is_word, line_of, word_positions};
use std::ops::Range;

/// How many lines above an unsafe block its SAFETY comment may begin.
const SAFETY_REACH: usize = 12;

/// A Rust file.
pub(super) struct Source {
    path: String,
    text: String,
    /// The text without comments and literals; every position is the same.
    code: String,
    /// The lines (from 1) of items under `#[cfg(test)]`.
    tests: Vec<Range<usize>>,
}

/// A function: its name and how many lines it takes, signature and all.
pub(super) struct Function {
    pub(super) name: String,
    pub(super) lines: usize,
}

impl Source {
    /// `path` is relative to the workspace, with `/`.
    pub(super) fn new(path: &str, text: &str) -> Source {
        // Positions in both must agree, so that a blanked `é` needs as many bytes as before.
        let text: String = text.chars().map(|c| if c.is_ascii() { c } else { '?' }).collect();
        let code = code_only(&text);
        let tests = test_lines(&code);
        Source { path: path.into(), text, code, tests }
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Whether the whole file is for tests, benchmarks or examples.
    pub(super) fn is_test(&self) -> bool {
        let folders = ["tests", "benches", "examples"];
        self.path.split('/').any(|part| folders.contains(&part) || part == "tests.rs")
            || self.path.starts_with("crates/testkit/")
            || self.path.starts_with("fuzz/")
    }

    /// Everything that is wrong with the file.
    pub(super) fn problems(&self) -> Vec<String> {
        let mut problems = self.undocumented_unsafe();
        if self.is_test() {
            return problems;
        }
        problems.extend(self.shipped(".unwrap()").map(|line| self.problem(line, "unwrap outside tests")));
        problems.extend(
            self.bare_expects().map(|line| self.problem(line, "expect that doesn't say why it holds")),
        );
        if !self.path.starts_with("crates/cli/") && !self.path.starts_with("xtask/") {
            let macros = ["println!", "print!", "eprintln!", "eprint!", "dbg!"];
            for name in macros {
                let uses = word_positions(&self.code, name.trim_end_matches('!'));
                let uses =
                    uses.filter(|&at| self.code[at..].starts_with(name)).map(|at| line_of(&self.code, at));
                problems.extend(
                    uses.filter(|&line| !self.in_tests(line))
                        .map(|line| self.problem(line, &format!("{name} outside cli and xtask"))),
                );
            }
        }
        problems
    }

    /// The lines, outside tests, where `pattern` stands in the code.
    pub(super) fn shipped<'a>(&'a self, pattern: &'a str) -> impl Iterator<Item = usize> + 'a {
        let lines = self.code.match_indices(pattern).map(|(at, _)| line_of(&self.code, at));
        lines.filter(|&line| !self.in_tests(line))
    }

    /// The string literals that look like environment variables: `"MINFER_CACHE"`.
    pub(super) fn variable_literals(&self) -> Vec<String> {
        let quoted = self.text.split('"').skip(1);
        let is_variable = |word: &&str| {
            word.len() > 3
                && word.contains('_')
                && word.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
        };
        quoted.filter(is_variable).map(Into::into).collect()
    }

    /// The names of all functions, tests included, as they stand in the code.
    pub(super) fn function_names(&self) -> impl Iterator<Item = &str> {
        word_positions(&self.code, "fn").map(|at| {
            let name = self.code[at + 2..].trim_start();
            &name[..name.find(|c| !is_word(c)).unwrap_or(name.len())]
        })
    }

    /// Every function outside tests that has a body.
    pub(super) fn functions(&self) -> Vec<Function> {
        let starts = word_positions(&self.code, "fn").zip(self.function_names());
        let named = starts.filter(|(_, name)| !name.is_empty());
        let whole = named.filter_map(|(at, name)| Some((at, block_end(&self.code, at)?, name)));
        let spans = whole.map(|(at, end, name)| (line_of(&self.code, at), line_of(&self.code, end), name));
        spans
            .filter(|&(first, ..)| !self.in_tests(first))
            .map(|(first, last, name)| Function { name: name.into(), lines: last - first + 1 })
            .collect()
    }

    /// The length of the file without its tests.
    pub(super) fn lines_without_tests(&self) -> usize {
        self.text.lines().count() - self.tests.iter().map(ExactSizeIterator::len).sum::<usize>()
    }

    /// The lines, outside tests, of each `expect` without a sentence that says which invariant it relies on.
    fn bare_expects(&self) -> impl Iterator<Item = usize> {
        const CALL: &str = ".expect(";
        let says_why = |at: usize| {
            let argument = self.text[at + CALL.len()..].trim_start().strip_prefix('"');
            argument
                .and_then(|text| text.split('"').next())
                .is_some_and(|why| why.split_whitespace().count() > 1)
        };
        let bare = self.code.match_indices(CALL).filter(move |&(at, _)| !says_why(at));
        bare.map(|(at, _)| line_of(&self.code, at)).filter(|&line| !self.in_tests(line))
    }

    fn undocumented_unsafe(&self) -> Vec<String> {
        let lines: Vec<&str> = self.text.lines().collect();
        let opens_block = |&at: &usize| self.code[at + "unsafe".len()..].trim_start().starts_with('{');
        let implements = |&at: &usize| {
            let rest = self.code[at + "unsafe".len()..].trim_start();
            rest.starts_with("impl ") || rest.starts_with("impl<")
        };
        word_positions(&self.code, "unsafe")
            .filter(|at| opens_block(at) || implements(at))
            .map(|at| line_of(&self.code, at))
            .filter(|&line| {
                !lines[line.saturating_sub(SAFETY_REACH + 1)..line].iter().any(|l| l.contains("SAFETY:"))
            })
            .map(|line| self.problem(line, "unsafe without a SAFETY comment"))
            .collect()
    }

    fn in_tests(&self, line: usize) -> bool {
        self.tests.iter().any(|lines| lines.contains(&line))
    }

    fn problem(&self, line: usize, what: &str) -> String {
        format!("{}:{line}: {what}", self.path)
    }
}

/// The lines of each item that follows `#[cfg(test)]` and has a body.
fn test_lines(code: &str) -> Vec<Range<usize>> {
    let attributes = code.match_indices("#[cfg(test)]").map(|(at, attribute)| (at, at + attribute.len()));
    let bodies = attributes.filter_map(|(at, after)| Some((at, block_end(code, after)?)));
    bodies.map(|(at, end)| line_of(code, at)..line_of(code, end) + 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(path: &str, text: &str) -> Vec<String> {
        Source::new(path, text).problems()
    }

    const LIB: &str = "crates/x/src/lib.rs";

    #[test]
    fn unsafe_needs_a_safety_comment() {
        assert_eq!(
            problems(LIB, "fn f() {\n    unsafe { g() }\n}"),
            ["crates/x/src/lib.rs:2: unsafe without a SAFETY comment"]
        );
        assert_eq!(problems(LIB, "unsafe impl Send for X {}").len(), 1);
        assert!(problems(LIB, "// SAFETY: it is so.\nlet x = unsafe { g() };").is_empty());
        assert!(problems(LIB, "/// # Safety\n/// so\npub unsafe fn f() {}").is_empty());
        assert!(problems(LIB, "#![deny(unsafe_code)] // unsafe { }\nlet s = \"unsafe {\";").is_empty());
    }

    #[test]
    fn unwrap_and_print_are_for_tests() {
        let text = "fn f() { x.unwrap(); y.expect(\"z\"); println!(); }\n#[cfg(test)]\nmod tests {\n fn g() { x.unwrap(); println!(); }\n}\n";
        assert_eq!(problems(LIB, text).len(), 3);
        assert_eq!(problems("crates/cli/src/main.rs", text).len(), 2);
        assert!(problems("crates/x/tests/t.rs", text).is_empty());
        assert!(problems("crates/x/src/a/tests.rs", text).is_empty());
        assert!(
            problems(LIB, "// x.unwrap()\n/// println!\nx.unwrap_or(1); writeln!(f); my_println!();")
                .is_empty()
        );
    }

    #[test]
    fn expect_says_why_it_holds() {
        assert_eq!(problems(LIB, "fn f() { x.expect(\"x\"); y.expect(why); }").len(), 2);
        assert!(
            problems(LIB, "x.expect(\"it was just put there\"); y.expect(\n    \"checked above\",\n);")
                .is_empty()
        );
    }

    #[test]
    fn functions_and_files_are_measured_without_tests() {
        let source = Source::new(
            LIB,
            "fn a() {\n    b\n}\ntrait T { fn c(); }\n#[cfg(test)]\nmod tests {\n    fn d() {\n    }\n}\n",
        );
        let functions: Vec<(String, usize)> =
            source.functions().into_iter().map(|f| (f.name, f.lines)).collect();
        assert_eq!(functions, [("a".into(), 3)]);
        assert_eq!(source.function_names().collect::<Vec<_>>(), ["a", "c", "d"]);
        assert_eq!(source.lines_without_tests(), 4);
    }

    #[test]
    fn variables_are_upper_case_literals() {
        let source =
            Source::new(LIB, "const A: &str = \"MINFER_CACHE\"; f(\"NO_COLOR\", \"no_color\", \"_\");");
        assert_eq!(source.variable_literals(), ["MINFER_CACHE", "NO_COLOR"]);
    }
}
