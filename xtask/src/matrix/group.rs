//! A control group with a hard limit of memory.

use super::through_shell;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where a version of control groups is mounted, and its files for the limit and the most that was used.
struct Version {
    mount: &'static str,
    limit: &'static str,
    peak: &'static str,
}

const VERSIONS: &[Version] = &[
    Version { mount: "/sys/fs/cgroup", limit: "memory.max", peak: "memory.peak" },
    Version {
        mount: "/sys/fs/cgroup/memory",
        limit: "memory.limit_in_bytes",
        peak: "memory.max_usage_in_bytes",
    },
];

/// A group of our own, removed at the end.
pub(super) struct Group {
    dir: PathBuf,
    version: &'static Version,
}

impl Group {
    /// `None` where none can be made: not root, or no controller.
    pub(super) fn new() -> Option<Self> {
        let name = format!("minfer-matrix-{}", std::process::id());
        VERSIONS.iter().find_map(|version| {
            let dir = Path::new(version.mount).join(&name);
            fs::create_dir(&dir).ok()?;
            let group = Self { dir, version };
            group.dir.join(version.limit).exists().then_some(group)
        })
    }

    /// `command` within the group, which may hold so many bytes.
    pub(super) fn command(&self, bytes: u64, command: &Command) -> Result<Command> {
        fs::write(self.dir.join(self.version.limit), bytes.to_string())?;
        let processes = self.dir.join("cgroup.procs");
        Ok(through_shell(&format!("echo $$ > {}", processes.display()), command))
    }

    /// The most bytes that were used, pages of files included.
    pub(super) fn peak(&self) -> Result<u64> {
        let text = fs::read_to_string(self.dir.join(self.version.peak))?;
        text.trim().parse().context("the peak isn't a number")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.dir);
    }
}
