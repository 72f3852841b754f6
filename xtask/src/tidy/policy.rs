//! The memory policy: every rule in force has tests, and a line in `AGENTS.md`.

use super::source::Source;
use std::collections::HashSet;

/// A rule in force: its id, and the tests that its section names.
struct Rule<'a> {
    id: &'a str,
    tests: Vec<&'a str>,
}

/// Rules of `policy` without a test that exists, and rules that `agents` doesn't link to.
pub(super) fn problems(policy: &str, agents: &str, sources: &[Source]) -> Vec<String> {
    let known: HashSet<&str> = sources.iter().flat_map(Source::function_names).collect();
    let rules = rules(policy);
    if rules.is_empty() {
        return vec!["docs/memory-policy.md has no rule".into()];
    }
    let mut problems = Vec::new();
    for rule in &rules {
        let prefix = format!("{}_", rule.id.to_lowercase());
        let own = rule.tests.iter().filter(|test| test.starts_with(&prefix));
        if own.clone().count() == 0 {
            problems.push(format!("docs/memory-policy.md: {} names no test {prefix}…", rule.id));
        }
        problems.extend(
            own.filter(|test| !known.contains(**test))
                .map(|test| format!("docs/memory-policy.md: {} names {test}, which doesn't exist", rule.id)),
        );
        if !agents.contains(&format!("docs/memory-policy.md#{}", rule.id.to_lowercase())) {
            problems.push(format!("AGENTS.md has no line that links to rule {}", rule.id));
        }
    }
    problems
}

/// The rows `| [A1](#a1) | `test`, … |` of the table of rules in force.
fn rules(policy: &str) -> Vec<Rule<'_>> {
    let rows = policy.lines().filter_map(|line| line.strip_prefix("| ["));
    rows.filter_map(|row| {
        let (id, rest) = row.split_once(']')?;
        Some(Rule { id, tests: rest.split('`').skip(1).step_by(2).collect() })
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGENTS: &str = "(docs/memory-policy.md#a1) (docs/memory-policy.md#b2)";

    fn check(policy: &str, agents: &str) -> Vec<String> {
        problems(policy, agents, &[Source::new("t.rs", "fn a1_x() {} fn b2_y() {} fn c() {}")])
    }

    #[test]
    fn a_rule_needs_a_test_of_its_own_that_exists() {
        assert!(check("| [A1](#a1) | `a1_x` |\n| [B2](#b2) | `b2_y` |", AGENTS).is_empty());
        assert!(check("| [A1](#a1) | |", AGENTS)[0].contains("A1 names no test a1_"));
        assert!(check("| [A1](#a1) | `c` |", AGENTS)[0].contains("A1 names no test a1_"));
        assert!(check("| [A1](#a1) | `a1_z` |", AGENTS)[0].contains("a1_z, which doesn't exist"));
        assert!(check("nothing", AGENTS)[0].contains("no rule"));
    }

    #[test]
    fn a_rule_needs_a_line_for_agents() {
        assert!(check("| [A1](#a1) | `a1_x` |", "")[0].contains("AGENTS.md"));
    }
}
