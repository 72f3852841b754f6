//! Everything that must pass before a change is good.

use crate::shell::{command, run, run_command, succeeds};
use crate::{conformance, instructions, root, setup, tidy};
use anyhow::Result;

/// Runs all checks, the quick ones first, and ends with the test runner's summary.
pub(crate) fn run_all() -> Result<()> {
    setup::install()?;
    run("cargo", &["fmt", "--all", "--check"])?;
    tidy::run(root())?;
    if succeeds("cargo", &["deny", "--version"]) {
        run("cargo", &["deny", "check"])?;
    }
    run("cargo", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])?;
    let mut doc = command("cargo", &["doc", "--workspace", "--lib", "--no-deps", "--quiet"]);
    run_command(doc.env("RUSTDOCFLAGS", "-D warnings"))?;
    conformance::run()?;
    instructions::run(false)?;
    run("cargo", &["test", "--workspace", "--doc", "--quiet"])?;
    let mut tests = match succeeds("cargo", &["nextest", "--version"]) {
        true => command("cargo", &["nextest", "run", "--workspace", "--status-level=fail"]),
        false => command("cargo", &["test", "--workspace", "--lib", "--bins", "--tests"]),
    };
    if setup::has_software_vulkan() {
        tests.env("MINFER_TEST_WGPU", "required");
    }
    // A check of a commit answers the same each time; a plain `cargo test` draws new cases at each run.
    run_command(tests.env("PROPTEST_RNG_SEED", "1"))
}
