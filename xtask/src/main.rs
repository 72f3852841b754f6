//! Project tasks: `cargo xtask setup | ci | tidy | fetch-models | bench-models | conformance | matrix | ledger`.
// A task's output is what it is for.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod ci;
mod conformance;
mod ledger;
mod matrix;
mod models;
mod setup;
mod shell;
mod tidy;

use anyhow::{Result, bail};
use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask TASK
  setup         install what a fresh machine lacks; does nothing where nothing is missing
  ci            everything that must pass: format, lints, tidy, build, conformance, tests
  tidy          check what a reader relies on, and print the longest functions and files
  fetch-models  bring the two real test models into the cache
  bench-models  write the models that speed is measured on: SmolLM2 re-encoded, a llama of a billion random weights
  conformance   compare the release binary with the golden data beside the checkout, if there is any
  matrix        compare memory planned and measured over every kind of request, in half an hour
  ledger        measure what the ledger costs a decode step";

fn main() -> ExitCode {
    match run(std::env::args().nth(1).as_deref()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Option<&str>) -> Result<()> {
    match task {
        Some("setup") => setup::install(),
        Some("ci") => ci::run_all(),
        Some("tidy") => tidy::run(root()),
        Some("fetch-models") => models::fetch(),
        Some("bench-models") => models::bench(),
        Some("conformance") => conformance::run(),
        Some("ledger") => ledger::measure(),
        Some("matrix") => matrix::run(),
        _ => bail!("expected a task\n{USAGE}"),
    }
}

/// The folder of the workspace.
fn root() -> &'static Path {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask)
}
