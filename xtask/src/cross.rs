//! The CPU's kernels for AArch64, under an emulator: what no other task compiles on x86-64.

use crate::shell::{self, run_command, succeeds};
use anyhow::{Result, ensure};

const PACKAGE: &str = "minfer-backend-cpu";
const TARGET: &str = "aarch64-unknown-linux-gnu";
const LINKER: &str = "aarch64-linux-gnu-gcc";
const EMULATOR: &str = "qemu-aarch64";
/// Where Debian keeps the system's libraries for the target.
const LIBRARIES: &str = "/usr/aarch64-linux-gnu";
/// Debian's packages with the three above.
const PACKAGES: &str = "gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user";

/// Checks the backend for the target, and tests its kernels on an emulated processor that has every instruction.
pub(crate) fn run() -> Result<()> {
    let missing = missing();
    ensure!(missing.is_empty(), "missing: {}", missing.join("; "));
    let check = ["clippy", "--package", PACKAGE, "--target", TARGET, "--all-targets", "--", "-D", "warnings"];
    shell::run("cargo", &check)?;
    let test = ["test", "--package", PACKAGE, "--target", TARGET, "--lib", "kernels"];
    let of_target = |what: &str| format!("CARGO_TARGET_{}_{what}", TARGET.to_uppercase().replace('-', "_"));
    run_command(
        shell::command("cargo", &test)
            .env(of_target("LINKER"), LINKER)
            .env(of_target("RUNNER"), format!("{EMULATOR} -L {LIBRARIES} -cpu max")),
    )
}

/// What isn't there, each with the command that brings it.
fn missing() -> Vec<String> {
    let mut missing = Vec::new();
    if !succeeds("sh", &["-c", &format!("ls $(rustc --print target-libdir --target {TARGET})/libcore-*")]) {
        missing.push(format!("Rust's {TARGET} (rustup target add {TARGET})"));
    }
    let programs = [LINKER, EMULATOR].map(|program| (program, succeeds(program, &["--version"])));
    let libraries = (LIBRARIES, succeeds("ls", &[&format!("{LIBRARIES}/lib/libc.so.6")]));
    let of_debian = programs.into_iter().chain([libraries]).filter(|(_, found)| !found);
    let of_debian: Vec<&str> = of_debian.map(|(what, _)| what).collect();
    if !of_debian.is_empty() {
        missing.push(format!("{} (on Debian: apt-get install {PACKAGES})", of_debian.join(", ")));
    }
    missing
}
