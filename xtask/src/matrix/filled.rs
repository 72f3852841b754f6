//! A context used to its end, within the smallest budget and under a hard limit of the plan and its slack (rule B5).

use super::case::{Request, Work};
use super::group::Group;
use super::{MIB, cpu_bytes, expect, in_address_space, outcome, plan};
use crate::shell::output;
use anyhow::{Result, ensure};
use serde_json::Value;
use std::process::Command;

/// Tokens that are left for generating after the longest prompt.
const GENERATED: usize = 8;
/// Where no control group can be made, address space is limited instead. It holds code, libraries, stacks, and what the
/// C library sets aside for each thread without using it.
const ADDRESSES: u64 = 256 * MIB;

/// Beside its plan a process may hold so much.
const fn slack(bytes: u64) -> u64 {
    32 * MIB + bytes / 50
}

/// Fills the context, and tells what that came to; where the plan is the greater part of the process, refuses it below.
pub(super) fn check(request: &Request) -> Result<()> {
    let total = cpu_bytes(&plan(request)?, "total_bytes")?;
    let limit = total + slack(total);
    let mut filling = match request.has_text {
        true => request.run(request.ctx - GENERATED - 1, request.ctx),
        false => request.work(Work::Perplexity(request.ctx)),
    };
    filling.args(["--cpu-mem", &total.div_ceil(MIB).to_string()]);
    let group = Group::new();
    let under = |bytes: u64, command: &Command| match &group {
        Some(group) => group.command(bytes, command),
        None => Ok(in_address_space(bytes + ADDRESSES, command)),
    };
    let answer: Value = serde_json::from_slice(&output(&mut under(limit, &filling)?)?)?;
    ensure!(
        !request.has_text || answer["stop"] == "context",
        "it stopped before the end: {}",
        answer["stop"]
    );
    if let Some(group) = &group {
        let peak = group.peak()?;
        eprintln!("  {total} bytes planned, limited to {limit}, at most {peak} used");
        if total > 2 * slack(total) {
            let mut auto = request.work(Work::Perplexity(1));
            expect(
                &outcome(&mut group.command(total, auto.args(["--cpu-mem", "auto"]))?)?,
                3,
                "exceed the budget",
            )?;
        }
    }
    Ok(())
}
