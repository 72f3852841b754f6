//! The crates of the workspace and what they depend on, against the tables of `ARCHITECTURE.md`.

use crate::shell;
use anyhow::{Context, Result};
use serde_json::Value;
use std::path::Path;

/// What every crate depends on.
pub(super) struct Workspace {
    crates: Vec<Crate>,
}

struct Crate {
    name: String,
    /// Dependencies of the crate itself, not of its tests.
    dependencies: Vec<String>,
    dev_dependencies: Vec<String>,
}

/// A row of the crate table: a crate and the crates of the workspace that it may depend on.
struct Row<'a> {
    name: &'a str,
    allowed: Vec<&'a str>,
}

impl Workspace {
    /// Asks cargo, without network.
    pub(super) fn read(root: &Path) -> Result<Workspace> {
        let mut cargo =
            shell::command("cargo", &["metadata", "--no-deps", "--offline", "--format-version=1"]);
        let metadata: Value = serde_json::from_slice(&shell::output(cargo.current_dir(root))?)?;
        Workspace::parse(&metadata).context("cargo metadata has an unexpected shape")
    }

    fn parse(metadata: &Value) -> Option<Workspace> {
        let packages = metadata["packages"].as_array()?;
        let crates = packages.iter().map(|package| {
            let of_kind = |dev: bool| {
                let all = package["dependencies"].as_array()?.iter();
                let chosen = all.filter(|dependency| (dependency["kind"] == "dev") == dev);
                chosen
                    .map(|dependency| Some(dependency["name"].as_str()?.to_owned()))
                    .collect::<Option<Vec<_>>>()
            };
            let name = package["name"].as_str()?.to_owned();
            Some(Crate { name, dependencies: of_kind(false)?, dev_dependencies: of_kind(true)? })
        });
        Some(Workspace { crates: crates.collect::<Option<Vec<_>>>()? })
    }

    /// Everything that isn't as `architecture` says.
    pub(super) fn problems(&self, architecture: &str) -> Vec<String> {
        let table = crate_table(architecture);
        let mut problems = table_problems(&table);
        for package in &self.crates {
            let row = table.iter().find(|row| row.name == package.name);
            match row {
                Some(row) => problems.extend(self.forbidden(package, row)),
                None => {
                    problems
                        .push(format!("ARCHITECTURE.md: the crate table has no row for {}", package.name));
                }
            }
            let external = package.dependencies.iter().chain(&package.dev_dependencies);
            problems.extend(
                external.filter(|name| !self.has(name) && !architecture.contains(&format!("`{name}`"))).map(
                    |name| format!("ARCHITECTURE.md doesn't name {name}, on which {} depends", package.name),
                ),
            );
        }
        problems.sort();
        problems.dedup();
        problems
    }

    /// Tests may use anything; only what is shipped has a direction.
    fn forbidden<'a>(&'a self, package: &'a Crate, row: &'a Row<'_>) -> impl Iterator<Item = String> + 'a {
        let internal = package.dependencies.iter().filter(|name| self.has(name));
        internal
            .filter(|name| !row.allowed.contains(&name.as_str()))
            .map(|name| format!("{} depends on {name}, which ARCHITECTURE.md doesn't allow", package.name))
    }

    fn has(&self, name: &str) -> bool {
        self.crates.iter().any(|package| package.name == name)
    }
}

/// The rows `| `name` | what it is | `dependency`, … |` of the table under the heading "Crates".
fn crate_table(architecture: &str) -> Vec<Row<'_>> {
    let section =
        architecture.split("\n## ").find(|section| section.starts_with("Crates")).unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    rows.filter_map(|line| {
        let cells: Vec<&str> = line.split('|').collect();
        Some(Row { name: code_words(cells.get(1)?).next()?, allowed: code_words(cells.get(3)?).collect() })
    })
    .collect()
}

/// The words between backquotes.
fn code_words(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// The table itself has a direction: a row only names rows above it, and a backend neither the file format
/// nor another backend.
fn table_problems(table: &[Row<'_>]) -> Vec<String> {
    let mut problems = Vec::new();
    for (i, row) in table.iter().enumerate() {
        for allowed in &row.allowed {
            let is_above = table[..i].iter().any(|above| above.name == *allowed);
            let is_backend = |name: &str| name.starts_with("minfer-backend-");
            let sees_too_much = is_backend(row.name) && (is_backend(allowed) || *allowed == "minfer-gguf");
            if !is_above || sees_too_much {
                problems.push(format!("ARCHITECTURE.md: {} must not depend on {allowed}", row.name));
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const TABLE: &str = "# A\n\n## Crates\n\n| crate | what | may depend on |\n|---|---|---|\n| `a` | x | |\n\
                         | `b` | y | `a` |\n\n## Dependencies\n\n`serde` | `q`\n";

    fn workspace(dependencies: &[(&str, &[&str])]) -> Workspace {
        let package = |(name, on): &(&str, &[&str])| {
            let on: Vec<Value> = on.iter().map(|name| json!({ "name": name, "kind": null })).collect();
            json!({ "name": name, "dependencies": on })
        };
        let packages: Vec<Value> = dependencies.iter().map(package).collect();
        Workspace::parse(&json!({ "packages": packages })).unwrap()
    }

    #[test]
    fn a_workspace_as_described_is_fine() {
        assert!(workspace(&[("a", &["serde"]), ("b", &["a"])]).problems(TABLE).is_empty());
    }

    #[test]
    fn what_the_table_does_not_allow_is_a_problem() {
        let problems = workspace(&[("a", &["b", "left-pad"]), ("c", &[])]).problems(TABLE);
        assert_eq!(problems.len(), 3 - 1, "{problems:?}");
        let problems = workspace(&[("a", &["b", "left-pad"]), ("b", &[]), ("c", &[])]).problems(TABLE);
        assert_eq!(
            problems,
            [
                "ARCHITECTURE.md doesn't name left-pad, on which a depends",
                "ARCHITECTURE.md: the crate table has no row for c",
                "a depends on b, which ARCHITECTURE.md doesn't allow",
            ]
        );
    }

    #[test]
    fn the_table_has_one_direction() {
        let rows = |text| table_problems(&crate_table(text)).len();
        assert_eq!(rows(TABLE), 0);
        assert_eq!(rows("\n## Crates\n| `a` | | `b` |\n| `b` | | |"), 1);
        assert_eq!(rows("\n## Crates\n| `minfer-gguf` | | |\n| `minfer-backend-x` | | `minfer-gguf` |"), 1);
    }
}
