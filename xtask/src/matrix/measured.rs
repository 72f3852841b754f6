//! Planned = charged = measured (rule B4).

use super::case::{Request, Work};
use super::{cpu_bytes, plan};
use crate::shell::output;
use anyhow::{Result, ensure};
use serde_json::Value;
use std::fs;

/// What a plan and a report say in the same words.
const SAME: &[&str] =
    &["model", "request", "offload", "blocks", "kv_bytes_per_token", "alternatives", "fits", "refusal"];
/// Bytes that are measured as they were planned.
const EXACT: &[&str] =
    &["weights_bytes", "kv_bytes", "pool_bytes", "scratch_bytes", "staging_bytes", "mapped_bytes"];
/// What the total is the sum of.
const PARTS: &[&str] = &["weights_bytes", "kv_bytes", "pool_bytes", "scratch_bytes", "host_bytes"];

/// Runs a command, and compares its report with the plan.
pub(super) fn check(request: &Request, work: Work) -> Result<()> {
    let planned = plan(request)?;
    let file = crate::root().join(format!("target/matrix-{}.json", std::process::id()));
    let answer = output(request.work(work).arg("--memory-report").arg(&file))?;
    let answer: Value = serde_json::from_slice(&answer)?;
    let report: Value = serde_json::from_slice(&fs::read(&file)?)?;
    fs::remove_file(&file)?;
    compare(&planned, &report)?;
    let told = answer.get("memory").unwrap_or(&report);
    ensure!(*told == report, "the answer says {told}, the report {report}");
    if let Work::Run(tokens) = work {
        let prompt = &answer["prompt_tokens"];
        ensure!(*prompt == tokens || *prompt == tokens + 1, "a prompt of {prompt} tokens");
    }
    Ok(())
}

fn compare(planned: &Value, report: &Value) -> Result<()> {
    for &key in SAME {
        ensure!(planned[key] == report[key], "{key}: planned {}, reported {}", planned[key], report[key]);
    }
    for &key in EXACT {
        let (planned, measured) = (cpu_bytes(planned, key)?, cpu_bytes(report, key)?);
        ensure!(planned == measured, "{key}: planned {planned}, measured {measured}");
    }
    let (bound, host) = (cpu_bytes(planned, "host_bytes")?, cpu_bytes(report, "host_bytes")?);
    ensure!((1..=bound).contains(&host), "host_bytes: planned at most {bound}, measured {host}");
    for page in [planned, report] {
        let parts = PARTS.iter().map(|key| cpu_bytes(page, key)).sum::<Result<u64>>()?;
        let total = cpu_bytes(page, "total_bytes")?;
        let kinds = cpu_bytes(page, "mapped_bytes")? + cpu_bytes(page, "anonymous_bytes")?;
        ensure!(parts == total && kinds == total, "{total} bytes in all, but {parts} or {kinds} by parts");
    }
    let (peak, pool) = (cpu_bytes(report, "peak_live_bytes")?, cpu_bytes(report, "pool_bytes")?);
    ensure!((1..=pool).contains(&peak), "{peak} bytes were live in a pool of {pool}");
    Ok(())
}
