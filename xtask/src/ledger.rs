//! What the ledger costs: decode steps with it and with one that charges nothing, in alternation.

use crate::models::{self, MODELS};
use crate::shell::{command, output, run_command};
use anyhow::{Context, Result};
use std::path::PathBuf;
use std::process::Command;

/// Odd, so that one of them is the median.
const PAIRS: usize = 11;
/// Threads of the model.
const THREADS: &str = "2";

/// Builds both, and prints the ratio of each pair and the median.
pub(crate) fn measure() -> Result<()> {
    models::fetch()?;
    let model = models::path_of(MODELS[0].alias)?;
    let (with, without) = (build("target", "")?, build("target/no-ledger", "--cfg minfer_no_ledger")?);
    let mut ratios = Vec::new();
    for pair in 1..=PAIRS {
        let (with, without) = (step(&with, &model)?, step(&without, &model)?);
        println!("{pair:>2}: {with:.3} ms with, {without:.3} ms without, ratio {:.4}", with / without);
        ratios.push(with / without);
    }
    ratios.sort_by(f64::total_cmp);
    println!("median {:.4}", ratios[PAIRS / 2]);
    Ok(())
}

/// The example `ledger`, built with `flags` into a folder of its own: flags decide whether the rest is built again.
fn build(target: &str, flags: &str) -> Result<PathBuf> {
    let target = crate::root().join(target);
    let args = ["build", "--release", "--package", "minfer-engine", "--example", "ledger", "--target-dir"];
    let mut cargo = command("cargo", &args);
    run_command(cargo.arg(&target).env("RUSTFLAGS", flags))?;
    Ok(target.join("release/examples/ledger"))
}

/// Milliseconds of a decode step: the first line.
fn step(example: &PathBuf, model: &str) -> Result<f64> {
    let lines = String::from_utf8(output(Command::new(example).args([model, THREADS]))?)?;
    let first = lines.lines().next().and_then(|line| line.strip_prefix("decode step")?.strip_suffix("ms"));
    Ok(first.context("no time of a decode step")?.trim().parse()?)
}
