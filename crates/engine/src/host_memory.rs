//! What the system and the container leave of the host's memory (rule B5).
//!
//! Sources: `proc(5)` for `MemAvailable`; the kernel's `cgroup-v2.rst` and `cgroup-v1/memory.rst` for limits and usage.

use std::fs;
use std::path::{Path, PathBuf};

use minfer_graph::DeviceMemory;
use minfer_tensor::Bytes;

/// Memory that this process may still take, and the memory of the machine or the container: the smaller of `MemAvailable`
/// and what every limit of a control group along the parents leaves, page cache that can be reclaimed not counted as used.
pub fn host_memory() -> DeviceMemory {
    host_memory_under(Path::new("/"))
}

/// [`host_memory`] with the files `proc` and `sys` looked up under `root`.
pub fn host_memory_under(root: &Path) -> DeviceMemory {
    let Some((available, total)) = meminfo(root) else {
        return DeviceMemory::QueryFailed { name: "no MemAvailable in /proc/meminfo".to_owned() };
    };
    let groups = control_groups(root);
    let free = groups.iter().map(Group::left).fold(available, u64::min);
    let total = groups.iter().map(|g| g.limit).fold(total, u64::min);
    DeviceMemory::Reported { free: Bytes::new(free), total: Bytes::new(total) }
}

/// The largest plan that `free` bytes hold together with what isn't planned, stacks and mappings of libraries: 32 MiB and
/// 2 % of the plan.
pub fn room(free: Bytes) -> Bytes {
    Bytes::new(free.get().saturating_sub(32 << 20) / 51 * 50)
}

/// Limit, usage and reclaimable part of the usage of one control group, in bytes.
struct Group {
    limit: u64,
    usage: u64,
    reclaimable: u64,
}

impl Group {
    fn left(&self) -> u64 {
        self.limit.saturating_sub(self.usage.saturating_sub(self.reclaimable))
    }
}

/// Names of the files of one version of control groups.
struct Version {
    mount: &'static str,
    limit: &'static str,
    usage: &'static str,
    /// Keys of `memory.stat` that add up to the page cache.
    cache: [&'static str; 2],
}

const V2: Version = Version {
    mount: "sys/fs/cgroup",
    limit: "memory.max",
    usage: "memory.current",
    cache: ["active_file", "inactive_file"],
};

const V1: Version = Version {
    mount: "sys/fs/cgroup/memory",
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    cache: ["total_active_file", "total_inactive_file"],
};

fn control_groups(root: &Path) -> Vec<Group> {
    let listing = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    listing.lines().flat_map(|line| groups_of_line(root, line)).collect()
}

/// The groups that one line `hierarchy:controllers:path` names: its own and all parents that have a limit.
fn groups_of_line(root: &Path, line: &str) -> Vec<Group> {
    let mut fields = line.splitn(3, ':');
    let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else {
        return Vec::new();
    };
    let version = match controllers {
        "" => &V2,
        list if list.split(',').any(|c| c == "memory") => &V1,
        _ => return Vec::new(),
    };
    let mount = root.join(version.mount);
    // In a container the path may be that of the host, which isn't visible here; the mount's root is then our group.
    let own: PathBuf = mount.join(path.trim_start_matches('/'));
    let own = if own.is_dir() { own } else { mount.clone() };
    own.ancestors().take_while(|dir| dir.starts_with(&mount)).filter_map(|dir| group(dir, version)).collect()
}

fn group(dir: &Path, version: &Version) -> Option<Group> {
    let number = |file: &str| fs::read_to_string(dir.join(file)).ok()?.trim().parse().ok();
    let limit = number(version.limit)?; // "max" is no number and no limit
    let stat = fs::read_to_string(dir.join("memory.stat")).unwrap_or_default();
    let field = |key: &str| stat.lines().find_map(|l| l.strip_prefix(key)?.trim().parse::<u64>().ok());
    let reclaimable = version.cache.iter().filter_map(|key| field(&format!("{key} "))).sum();
    Some(Group { limit, usage: number(version.usage).unwrap_or(0), reclaimable })
}

/// `MemAvailable` and `MemTotal` in bytes.
fn meminfo(root: &Path) -> Option<(u64, u64)> {
    let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let field = |key: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(key))?;
        value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    };
    Some((field("MemAvailable:")?, field("MemTotal:")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn fixture(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let meminfo = "MemTotal: 8388608 kB\nMemFree: 1 kB\nMemAvailable: 4194304 kB\n";
        for (path, text) in [("proc/meminfo", meminfo)].iter().chain(files) {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }

    fn free(files: &[(&str, &str)]) -> u64 {
        match host_memory_under(fixture(files).path()) {
            DeviceMemory::Reported { free, .. } => free.get() / MIB,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn without_a_group_it_is_what_the_machine_has() {
        assert_eq!(free(&[]), 4096);
        assert_eq!(free(&[("proc/self/cgroup", "0::/a\n"), ("sys/fs/cgroup/a/memory.max", "max\n")]), 4096);
    }

    #[test]
    fn the_smallest_limit_along_the_parents_counts() {
        let files = [
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/b/memory.max", "2147483648\n"),
            ("sys/fs/cgroup/a/b/memory.current", "0\n"),
            ("sys/fs/cgroup/a/memory.max", "1073741824\n"),
            ("sys/fs/cgroup/a/memory.current", "104857600\n"),
        ];
        assert_eq!(free(&files), 924);
    }

    #[test]
    fn s6_page_cache_is_not_used_memory() {
        let files = [
            ("proc/self/cgroup", "3:cpu,memory:/x\n0::/\n"),
            ("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "1073741824\n"),
            ("sys/fs/cgroup/memory/x/memory.usage_in_bytes", "1073741824\n"),
            (
                "sys/fs/cgroup/memory/x/memory.stat",
                "total_active_file 104857600\ntotal_inactive_file 419430400\n",
            ),
        ];
        assert_eq!(free(&files), 500);
    }

    #[test]
    fn a_path_of_the_host_falls_back_to_the_mount() {
        let files = [("proc/self/cgroup", "0::/docker/abc\n"), ("sys/fs/cgroup/memory.max", "1048576\n")];
        assert_eq!(free(&files), 1);
    }

    #[test]
    fn b5_a_plan_and_its_slack_fit_what_is_free() {
        for plan in [0, 1 << 20, 100 << 20, 1 << 40] {
            let slack = (32 << 20) + plan / 50;
            let room = room(Bytes::new(plan + slack)).get();
            assert!(room <= plan && plan - room <= 50, "{plan} {room}");
        }
        assert_eq!(room(Bytes::new(1 << 20)), Bytes::ZERO);
    }

    #[test]
    fn no_answer_is_not_zero() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(host_memory_under(dir.path()), DeviceMemory::QueryFailed { .. }));
    }
}
