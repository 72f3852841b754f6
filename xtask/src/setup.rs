//! What a fresh machine lacks. Where nothing is missing, no network is asked.

use crate::shell::{run, succeeds};
use anyhow::{Result, bail};

/// A program that the project needs, how to tell that it is there, and who brings it on Debian.
struct Tool {
    what: &'static str,
    check: (&'static str, &'static [&'static str]),
    packages: &'static [&'static str],
}

const TOOLS: &[Tool] = &[
    Tool { what: "a C compiler", check: ("cc", &["--version"]), packages: &["gcc", "libc6-dev"] },
    Tool { what: "Python", check: ("python3", &["--version"]), packages: &["python3"] },
    Tool { what: "pip", check: ("python3", &["-m", "pip", "--version"]), packages: &["python3-pip"] },
];

/// Without it the tests of the graphics backend say that they are skipped, unless the machine has a graphics processor.
const SOFTWARE_VULKAN: &str = "mesa-vulkan-drivers";
/// Without it no instructions are counted; they are recorded for x86-64 alone.
const VALGRIND: &str = "valgrind";

/// Installs what is missing.
pub(crate) fn install() -> Result<()> {
    for (component, subcommand) in [("rustfmt", "fmt"), ("clippy", "clippy")] {
        if !succeeds("cargo", &[subcommand, "--version"]) {
            run("rustup", &["component", "add", component])?;
        }
    }
    let missing: Vec<&Tool> = TOOLS.iter().filter(|tool| !succeeds(tool.check.0, tool.check.1)).collect();
    let packages: Vec<&str> = missing.iter().flat_map(|tool| tool.packages).copied().collect();
    if !packages.is_empty() {
        let names: Vec<&str> = missing.iter().map(|tool| tool.what).collect();
        if !can_install() {
            bail!("missing: {}; on Debian: apt-get install {}", names.join(", "), packages.join(" "));
        }
        apt_get(&packages)?;
    }
    if can_install() && !has_software_vulkan() && apt_get(&[SOFTWARE_VULKAN]).is_err() {
        eprintln!(
            "{SOFTWARE_VULKAN} can't be had: the graphics backend is tested only where the machine has a device"
        );
    }
    let counts = cfg!(target_arch = "x86_64") && can_install() && !has_valgrind();
    if counts && apt_get(&[VALGRIND]).is_err() {
        eprintln!("{VALGRIND} can't be had: the instructions of the kernels aren't counted");
    }
    Ok(())
}

fn apt_get(packages: &[&str]) -> Result<()> {
    run("apt-get", &["update", "-qq"])?;
    run("apt-get", &[&["install", "-y", "-qq", "--no-install-recommends"], packages].concat())
}

/// Whether kernels can be tested without a graphics processor.
pub(crate) fn has_software_vulkan() -> bool {
    succeeds("sh", &["-c", "ls /usr/share/vulkan/icd.d/lvp_icd*.json"])
}

/// Whether instructions can be counted.
pub(crate) fn has_valgrind() -> bool {
    succeeds(VALGRIND, &["--version"])
}

/// Whether this is root on a machine with apt.
fn can_install() -> bool {
    succeeds("apt-get", &["--version"]) && succeeds("sh", &["-c", "test $(id -u) = 0"])
}
