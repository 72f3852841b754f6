//! How many physical cores this process may use: two threads on one core share what a kernel fills alone.

use std::collections::BTreeSet;
use std::fs;

/// More processors than Linux knows: a list can't make the program count for long.
const MOST: usize = 8192;

/// Cores of the processors in the affinity mask; `None` where the system doesn't tell.
pub(crate) fn physical() -> Option<usize> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    count(allowed, |cpu| {
        fs::read_to_string(format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")).ok()
    })
}

/// Cores of the processors in a list, by the list of those that share a processor's core.
fn count(allowed: &str, siblings: impl Fn(usize) -> Option<String>) -> Option<usize> {
    let core = |cpu| processors(&siblings(cpu)?).next();
    let cores = processors(allowed).map(core).collect::<Option<BTreeSet<_>>>()?;
    (!cores.is_empty()).then_some(cores.len())
}

/// The numbers of a list such as `0-3,8`.
fn processors(list: &str) -> impl Iterator<Item = usize> {
    let ranges = list.trim().split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse::<usize>().ok()?..=last.parse::<usize>().ok()?)
    });
    ranges.flatten().take(MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Eight processors on four cores, whose threads are `distance` apart.
    fn pairs(distance: usize) -> impl Fn(usize) -> Option<String> {
        move |cpu| {
            let first = if distance == 1 { cpu / 2 * 2 } else { cpu % distance };
            let separator = if distance == 1 { '-' } else { ',' };
            (cpu < 8).then(|| format!("{first}{separator}{}\n", first + distance))
        }
    }

    #[test]
    fn threads_of_a_core_count_once() {
        for distance in [1, 4] {
            assert_eq!(count(" 0-7\n", pairs(distance)), Some(4));
        }
        assert_eq!(count("0,4", pairs(4)), Some(1));
        assert_eq!(count("4-6", pairs(4)), Some(3));
        assert_eq!(count("0-3", |cpu| Some(cpu.to_string())), Some(4));
    }

    #[test]
    fn what_the_system_does_not_tell_is_not_guessed() {
        assert_eq!(count("0-8", pairs(4)), None);
        assert_eq!(count("", pairs(4)), None);
        assert_eq!(count("0-1", |_| Some("x".to_owned())), None);
        assert_eq!(processors("0-18446744073709551615").count(), MOST);
    }
}
