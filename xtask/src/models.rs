//! The real models that the conformance checks run on.

use crate::shell;
use anyhow::{Context, Result};
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A real model and the folder of its golden results.
pub(crate) struct Model {
    pub(crate) alias: &'static str,
    pub(crate) golden: &'static str,
}

pub(crate) const MODELS: &[Model] = &[
    Model { alias: "smollm2:135m", golden: "smollm2-135m-instruct-q4_1" },
    Model { alias: "gemma3:270m", golden: "gemma-3-270m-q4_k_m" },
];

/// Builds the binary and has it fetch both models, by asking what is in them.
pub(crate) fn fetch() -> Result<()> {
    shell::run("cargo", &["build", "--release", "--package", "minfer"])?;
    for model in MODELS {
        shell::run_command(
            Command::new(binary()).args(["inspect", model.alias, "--json"]).stdout(Stdio::null()),
        )?;
    }
    Ok(())
}

/// Writes the models that speed is measured on beside the build, or leaves them there, and prints their paths.
pub(crate) fn bench() -> Result<()> {
    fetch()?;
    let folder = target().join("bench-models");
    shell::run_command(
        shell::command(
            "cargo",
            &["run", "--release", "--package", "minfer-testkit", "--example", "bench_models", "--"],
        )
        .arg(path_of(MODELS[0].alias)?)
        .arg(folder),
    )
}

/// The file behind an alias.
pub(crate) fn path_of(alias: &str) -> Result<String> {
    let plan = shell::output(minfer().args(["plan", alias, "--json", "--quiet"]))?;
    let plan: Value = serde_json::from_slice(&plan)?;
    Ok(plan["model"]["path"].as_str().context("no path of the model")?.to_owned())
}

/// A run of the release binary on the CPU, whatever else the machine has.
pub(crate) fn minfer() -> Command {
    let mut command = Command::new(binary());
    command.env("MINFER_DEVICE", "cpu");
    command
}

/// The release binary.
pub(crate) fn binary() -> PathBuf {
    target().join("release").join(format!("minfer{}", std::env::consts::EXE_SUFFIX))
}

/// The folder of build products.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| crate::root().join("target"), PathBuf::from)
}
