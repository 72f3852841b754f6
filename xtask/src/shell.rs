//! Other programs: run, checked, and shown.

use anyhow::{Context, Result, ensure};
use std::process::{Command, Output, Stdio};

/// A program in the folder of the workspace.
pub(crate) fn command(program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).current_dir(crate::root());
    command
}

/// Runs a program, showing its command line and its output.
pub(crate) fn run(program: &str, args: &[&str]) -> Result<()> {
    run_command(&mut command(program, args))
}

/// As [`run`], for a command with more to it.
pub(crate) fn run_command(command: &mut Command) -> Result<()> {
    let line = line(command);
    eprintln!("$ {line}");
    let status = command.status().with_context(|| format!("cannot start: {line}"))?;
    ensure!(status.success(), "{line}: {status}");
    Ok(())
}

/// Runs a program and returns what it printed; its errors go where ours go.
pub(crate) fn output(command: &mut Command) -> Result<Vec<u8>> {
    let line = line(command);
    let Output { status, stdout, .. } =
        command.stderr(Stdio::inherit()).output().with_context(|| format!("cannot start: {line}"))?;
    ensure!(status.success(), "{line}: {status}");
    Ok(stdout)
}

/// Whether a program is there and content with these arguments. Shows nothing.
pub(crate) fn succeeds(program: &str, args: &[&str]) -> bool {
    let quiet =
        command(program, args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    quiet.is_ok_and(|status| status.success())
}

fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
