//! Project tasks: `cargo xtask setup | ci | tidy | fetch-models | bench-models | conformance | matrix | ledger |
//! instructions | cross`.
// A task's output is what it is for.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod ci;
mod conformance;
mod cross;
mod instructions;
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
  ledger        measure what the ledger costs a decode step
  instructions  compare the instructions of the hot kernels with benches/instructions.json; --update replaces that
  cross         test the CPU's kernels for AArch64 under an emulator";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[&str]) -> Result<()> {
    match args {
        ["setup"] => setup::install(),
        ["ci"] => ci::run_all(),
        ["tidy"] => tidy::run(root()),
        ["fetch-models"] => models::fetch(),
        ["bench-models"] => models::bench(),
        ["conformance"] => conformance::run(),
        ["ledger"] => ledger::measure(),
        ["matrix"] => matrix::run(),
        ["cross"] => cross::run(),
        ["instructions"] => instructions::run(false),
        ["instructions", "--update"] => instructions::run(true),
        _ => bail!("expected a task\n{USAGE}"),
    }
}

/// The folder of the workspace.
fn root() -> &'static Path {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask)
}
