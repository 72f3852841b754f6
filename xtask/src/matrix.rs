//! The memory policy over many requests: what `minfer plan` says beside what a command came to hold (rule B4), budgets
//! and the refusals below them (rule B3), whole contexts under a hard limit (rule B5).

mod budget;
mod case;
mod filled;
mod group;
mod measured;
mod subject;

use crate::models;
use crate::shell::output;
use anyhow::{Context, Result, bail, ensure};
use case::{Case, Check, Request};
use serde_json::Value;
use std::process::{Command, Output};
use subject::Subject;

const MIB: u64 = 1 << 20;

/// Builds the binary, fetches the models, and checks every case.
pub(crate) fn run() -> Result<()> {
    models::fetch()?;
    let subjects = Subject::all()?;
    let mut cases = case::spread(subjects.iter().flat_map(case::cases));
    cases.extend(subjects.iter().filter_map(case::longest));
    check(&cases)
}

/// A few cases, of every kind, with the binary and the models that are there: less than a minute.
pub(crate) fn quick() -> Result<()> {
    check(&case::thinned(case::spread(Subject::all()?.iter().flat_map(case::cases))))
}

fn check(cases: &[Case]) -> Result<()> {
    let mut failed = 0;
    for (nth, Case { request, check }) in cases.iter().enumerate() {
        eprintln!("{:>4}/{} {request}  {check:?}", nth + 1, cases.len());
        let found = match *check {
            Check::Refused => refused_for_its_heads(request),
            Check::Measured(work) => measured::check(request, work),
            Check::Budget => budget::check(request),
            Check::Filled => filled::check(request),
        };
        if let Err(error) = found {
            failed += 1;
            eprintln!("  otherwise than planned: {error:#}");
        }
    }
    ensure!(failed == 0, "{failed} of {} cases came out otherwise than planned", cases.len());
    eprintln!("{} cases came out as planned", cases.len());
    Ok(())
}

/// Blocks of 32 can't hold heads of any size.
fn refused_for_its_heads(request: &Request) -> Result<()> {
    expect(&outcome(&mut request.plan())?, 2, "in blocks of 32")
}

/// What the planner says, without a budget.
fn plan(request: &Request) -> Result<Value> {
    Ok(serde_json::from_slice(&output(&mut request.plan())?)?)
}

/// Bytes of the CPU, the only backend, in a plan or a report.
fn cpu_bytes(plan: &Value, key: &str) -> Result<u64> {
    plan["backends"][0][key].as_u64().with_context(|| format!("no {key} in the plan"))
}

fn outcome(command: &mut Command) -> Result<Output> {
    command.output().context("cannot start minfer")
}

/// Fails unless a command ended with this exit code and these words among its errors.
fn expect(found: &Output, code: i32, words: &str) -> Result<()> {
    let errors = String::from_utf8_lossy(&found.stderr);
    if found.status.code() == Some(code) && errors.contains(words) {
        return Ok(());
    }
    bail!("expected exit code {code} and \"{words}\", found {}: {errors}", found.status)
}

/// `command` with no more addresses than for so many bytes, where the system can limit them.
fn in_address_space(bytes: u64, command: &Command) -> Command {
    through_shell(&format!("ulimit -v {} 2>/dev/null", bytes / 1024), command)
}

/// `command` in the place of a shell that has run `script`.
fn through_shell(script: &str, command: &Command) -> Command {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", &format!("{script}; exec \"$@\""), "sh"]);
    shell.arg(command.get_program()).args(command.get_args());
    shell
}
