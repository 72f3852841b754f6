//! What a reader of this code relies on, checked.

mod crates;
mod docs;
mod policy;
mod source;
mod text;
mod tree;

use anyhow::{Context, Result, bail};
use source::Source;
use std::fs;
use std::path::Path;

/// Test data of more bytes than this makes a clone slow.
const MAX_DATA_BYTES: u64 = 30 << 20;

/// Checks the workspace at `root`, prints the longest functions and files, and fails if anything is wrong.
pub(crate) fn run(root: &Path) -> Result<()> {
    let files = tree::files(root)?;
    let sources = sources(root, &files)?;
    let architecture = read(root, "ARCHITECTURE.md")?;
    let metadata = crates::Workspace::read(root)?;

    let mut problems: Vec<String> = sources.iter().flat_map(Source::problems).collect();
    problems.extend(metadata.problems(&architecture));
    problems.extend(docs::environment_problems(&sources, &read(root, "docs/environment.md")?));
    problems.extend(policy::problems(
        &read(root, "docs/memory-policy.md")?,
        &read(root, "AGENTS.md")?,
        &sources,
    ));
    problems.extend(tree::data_problem(&files, MAX_DATA_BYTES));

    print_longest(&sources);
    for problem in &problems {
        println!("tidy: {problem}");
    }
    match problems.len() {
        0 => Ok(()),
        n => bail!("tidy found {n} problems"),
    }
}

fn sources(root: &Path, files: &[tree::Entry]) -> Result<Vec<Source>> {
    let rust = files.iter().filter(|file| file.path.ends_with(".rs"));
    rust.map(|file| Ok(Source::new(&file.path, &read(root, &file.path)?))).collect()
}

fn read(root: &Path, path: &str) -> Result<String> {
    fs::read_to_string(root.join(path)).with_context(|| format!("cannot read {path}"))
}

/// Not a limit: a place to look.
fn print_longest(sources: &[Source]) {
    let shipped = || sources.iter().filter(|source| !source.is_test());
    let mut functions: Vec<_> = shipped()
        .flat_map(|source| source.functions().into_iter().map(move |f| (f.lines, source, f.name)))
        .collect();
    functions.sort_by_key(|(lines, ..)| std::cmp::Reverse(*lines));
    println!("longest functions:");
    for (lines, source, name) in functions.iter().take(10) {
        println!("  {lines:5} {} {name}", source.path());
    }
    let mut files: Vec<_> = shipped().map(|source| (source.lines_without_tests(), source.path())).collect();
    files.sort_by_key(|(lines, _)| std::cmp::Reverse(*lines));
    println!("longest files, without their tests:");
    for (lines, path) in files.iter().take(10) {
        println!("  {lines:5} {path}");
    }
}
