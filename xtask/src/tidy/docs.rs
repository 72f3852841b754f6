//! Environment variables: read in one file, documented in another.

use super::source::Source;

/// The one file of the product that reads the environment.
const ENVIRONMENT: &str = "crates/cli/src/env.rs";

/// Variables that are read elsewhere or don't appear in `documented`, the text of `docs/environment.md`.
pub(super) fn environment_problems(sources: &[Source], documented: &str) -> Vec<String> {
    let product = |source: &&Source| !source.is_test() && source.path().starts_with("crates/");
    let mut problems = Vec::new();
    for source in sources.iter().filter(product) {
        if source.path() == ENVIRONMENT {
            let unknown = |name: &String| !documented.contains(&format!("`{name}`"));
            problems.extend(
                source
                    .variable_literals()
                    .into_iter()
                    .filter(unknown)
                    .map(|name| format!("{ENVIRONMENT}: {name} isn't documented in docs/environment.md")),
            );
            continue;
        }
        for call in ["env::var", "env::vars", "var_os("] {
            problems.extend(source.shipped(call).map(|line| {
                format!("{}:{line}: reads the environment, which only {ENVIRONMENT} may", source.path())
            }));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_read_in_one_place_and_documented() {
        let sources = [
            Source::new(ENVIRONMENT, "std::env::var(\"MINFER_CACHE\"); std::env::var(\"MINFER_SECRET\");"),
            Source::new("crates/x/src/lib.rs", "std::env::var(\"MINFER_CACHE\");"),
            Source::new("crates/x/tests/t.rs", "std::env::var(\"MINFER_CACHE\");"),
        ];
        let problems = environment_problems(&sources, "`MINFER_CACHE` is the cache");
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(problems[0].contains("MINFER_SECRET") && problems[1].starts_with("crates/x/src/lib.rs:1:"));
    }
}
