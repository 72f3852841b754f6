//! The smallest budget is admitted, what is below it refused, and each way out of a refusal is one (rule B3).

use super::case::{Request, Work};
use super::{MIB, cpu_bytes, expect, in_address_space, outcome, plan};
use crate::shell::output;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::process::Command;

/// Address space that a refusal gets by with: less than the real models take, so nothing of them was allocated.
const REFUSAL_BYTES: u64 = 64 * MIB;
/// The least work that loads the model.
const LOAD: Work = Work::Perplexity(3);

/// Takes the budget that it needs, a MiB less, and half of it.
pub(super) fn check(request: &Request) -> Result<()> {
    let mib = cpu_bytes(&plan(request)?, "total_bytes")?.div_ceil(MIB);
    output(request.work(LOAD).args(["--cpu-mem", &mib.to_string()]))?;
    for less in [mib - 1, mib / 2] {
        refused(request, &less.to_string()).with_context(|| format!("--cpu-mem {less}"))?;
    }
    Ok(())
}

fn refused(request: &Request, mib: &str) -> Result<()> {
    let mut work = in_address_space(REFUSAL_BYTES, request.work(LOAD).args(["--cpu-mem", mib]));
    expect(&outcome(&mut work)?, 3, "exceed the budget")?;
    let planned = outcome(request.plan().args(["--cpu-mem", mib]))?;
    expect(&planned, 3, "exceed the budget")?;
    let plan: Value = serde_json::from_slice(&planned.stdout)?;
    let others = plan["alternatives"].as_array().context("no alternatives")?;
    ensure!(!others.is_empty(), "no alternative to {plan}");
    others.iter().try_for_each(|other| taken(request, mib, other).with_context(|| other.to_string()))
}

/// Loads the model as an alternative says: what is left of the budget is what it says too.
fn taken(request: &Request, mib: &str, other: &Value) -> Result<()> {
    let argv = other["argv"].as_array().context("no argv")?;
    let argv =
        argv.iter().map(|word| word.as_str().context("a word that is none")).collect::<Result<Vec<_>>>()?;
    let with =
        |mut command: Command| -> Result<Vec<u8>> { output(command.args(["--cpu-mem", mib]).args(&argv)) };
    let plan: Value = serde_json::from_slice(&with(request.plan())?)?;
    ensure!(plan["backends"][0]["headroom_bytes"] == other["left_bytes"], "{plan}");
    with(request.work(LOAD)).map(drop)
}
