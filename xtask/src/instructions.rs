//! How many instructions the hot kernels take, beside those that were recorded: a gate on speed that no other load on the
//! machine disturbs.

use crate::setup;
use crate::shell::output;
use crate::{models, root, shell};
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value, json};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// The recorded counts, in the folder of the workspace.
const RECORD: &str = "benches/instructions.json";
/// The kernels that are counted: valgrind knows no AVX-512, and the scalar ones spend most in the system's `fmaf`.
const LEVEL: &str = "avx2";
/// The function of the example that runs a kernel once.
const COUNTED: &str = "counted_kernel";
/// A count may differ from the recorded one by so many percent.
const TOLERANCE: u64 = 3;
/// What brings the record up to date.
const UPDATE: &str = "cargo xtask instructions --update";

/// Counts, and compares with the record or replaces it. Where it can't be done, says why.
pub(crate) fn run(update: bool) -> Result<()> {
    if let Some(why) = obstacle() {
        eprintln!("instructions: skipped: {why}");
        return Ok(());
    }
    let compiler = compiler()?;
    let path = root().join(RECORD);
    if update {
        let found = Record { compiler, counts: count()? };
        return fs::write(&path, found.to_text()?).with_context(|| format!("cannot write {RECORD}"));
    }
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {RECORD}"))?;
    let recorded = Record::parse(&text).with_context(|| format!("{RECORD} has an unexpected shape"))?;
    if recorded.compiler != compiler {
        let difference = format!("{RECORD} is of {}, this is {compiler}", recorded.compiler);
        // The pinned compiler was changed without the record, or somebody uses another than that.
        ensure!(!is_pinned(&compiler)?, "{difference}; if the compiler was changed on purpose: {UPDATE}");
        eprintln!("instructions: skipped: {difference}, and not the compiler of rust-toolchain.toml");
        return Ok(());
    }
    judge(&recorded.counts, &count()?)
}

/// Why nothing can be counted here.
fn obstacle() -> Option<&'static str> {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        return Some("the record is of x86-64 Linux");
    }
    if !has_avx2() {
        return Some("this processor has no AVX2");
    }
    (!setup::has_valgrind()).then_some("there is no valgrind")
}

#[cfg(target_arch = "x86_64")]
fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_avx2() -> bool {
    false
}

/// Builds the example and has valgrind count each run of [`COUNTED`]: the example says what it ran, valgrind writes a file
/// for each.
fn count() -> Result<Counts> {
    let example = ["build", "--release", "--package", "minfer", "--example", "hot_kernels"];
    shell::run("cargo", &example)?;
    let folder = models::target().join("instructions");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    let profile = folder.join(LEVEL);
    let mut valgrind = Command::new("valgrind");
    valgrind
        .args(["--tool=callgrind", "--quiet"])
        .args(["--toggle-collect", "--dump-after"].map(|option| format!("{option}={COUNTED}")))
        .arg(format!("--callgrind-out-file={}", profile.display()))
        .arg(models::target().join("release/examples/hot_kernels"))
        .arg(LEVEL);
    let names = String::from_utf8(output(&mut valgrind)?)?;
    let names = names.lines().filter_map(|line| line.split(':').next()).enumerate();
    let counts = names.map(|(nth, name)| {
        let dump = PathBuf::from(format!("{}.{}", profile.display(), nth + 1));
        let text = fs::read_to_string(&dump).with_context(|| format!("cannot read {}", dump.display()))?;
        let count = total(&text).with_context(|| format!("no total in {}", dump.display()))?;
        Ok((name.to_owned(), count))
    });
    counts.collect()
}

/// The sum of a callgrind profile.
fn total(profile: &str) -> Option<u64> {
    let line = profile.lines().find_map(|line| line.strip_prefix("totals:"))?;
    line.trim().parse().ok().filter(|&count| count > 0)
}

/// Instructions of a run of each kernel, by its name.
type Counts = Vec<(String, u64)>;

/// Counts, and the version of the compiler that they are of.
struct Record {
    compiler: String,
    counts: Counts,
}

impl Record {
    fn parse(text: &str) -> Result<Self> {
        let record: Value = serde_json::from_str(text)?;
        let compiler = record["compiler"].as_str().context("no compiler")?.to_owned();
        let counts = record["instructions"].as_object().context("no instructions")?;
        let counts = counts.iter().map(|(name, count)| Some((name.clone(), count.as_u64()?)));
        Ok(Self { compiler, counts: counts.collect::<Option<_>>().context("a count isn't a number")? })
    }

    fn to_text(&self) -> Result<String> {
        let counts = self.counts.iter().map(|(name, count)| (name.clone(), (*count).into()));
        let record = json!({ "compiler": self.compiler, "instructions": counts.collect::<Map<_, _>>() });
        Ok(serde_json::to_string_pretty(&record)? + "\n")
    }
}

/// Prints what differs, and fails if something takes more instructions than recorded.
fn judge(recorded: &Counts, found: &Counts) -> Result<()> {
    let (better, worse) = differences(recorded, found);
    better.iter().for_each(|line| println!("instructions: {line}"));
    if !better.is_empty() {
        println!("instructions: fewer than recorded; to hold on to that: {UPDATE}");
    }
    worse.iter().for_each(|line| println!("instructions: {line}"));
    match worse.len() {
        0 => println!("instructions: {} counts, none more than {TOLERANCE} % above its record", found.len()),
        n => bail!("{n} counts of instructions aren't as recorded; if on purpose: {UPDATE}"),
    }
    Ok(())
}

/// What is better than recorded beyond the tolerance, and what is worse or recorded on one side only.
fn differences(recorded: &Counts, found: &Counts) -> (Vec<String>, Vec<String>) {
    let (mut better, mut worse) = (Vec::new(), Vec::new());
    let of = |counts: &Counts, name: &str| Some(counts.iter().find(|(other, _)| other == name)?.1);
    for (name, count) in found {
        let Some(before) = of(recorded, name) else {
            worse.push(format!("{name}: {count}, and none recorded"));
            continue;
        };
        let percent = 100.0 * (*count as f64 / before as f64 - 1.0);
        let line = format!("{name}: {count}, {before} recorded ({percent:+.1} %)");
        if count * 100 > before * (100 + TOLERANCE) {
            worse.push(line);
        } else if count * 100 < before * (100 - TOLERANCE) {
            better.push(line);
        }
    }
    let gone = recorded.iter().filter(|(name, _)| of(found, name).is_none());
    worse.extend(gone.map(|(name, _)| format!("{name}: recorded, but not counted any more")));
    (better, worse)
}

/// The version of the compiler that cargo uses here: `1.95.0`.
fn compiler() -> Result<String> {
    let version = String::from_utf8(output(&mut shell::command("rustc", &["--version"]))?)?;
    Ok(version.split_whitespace().nth(1).context("rustc tells no version")?.to_owned())
}

/// Whether it is the one that the project asks for.
fn is_pinned(compiler: &str) -> Result<bool> {
    let toolchain = fs::read_to_string(root().join("rust-toolchain.toml"))?;
    Ok(toolchain.contains(&format!("channel = \"{compiler}\"")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(all: &[(&str, u64)]) -> Counts {
        all.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    }

    #[test]
    fn only_more_than_the_tolerance_above_the_record_is_worse() {
        let recorded = counts(&[("a", 1000), ("b", 1000), ("c", 1000), ("d", 1000)]);
        let found = counts(&[("a", 1030), ("b", 1031), ("c", 970), ("d", 969)]);
        let (better, worse) = differences(&recorded, &found);
        assert_eq!(better, ["d: 969, 1000 recorded (-3.1 %)"]);
        assert_eq!(worse, ["b: 1031, 1000 recorded (+3.1 %)"]);
        let error = judge(&recorded, &found).unwrap_err().to_string();
        assert!(error.contains("--update"), "{error}");
        assert!(judge(&recorded, &counts(&[("a", 1), ("b", 1), ("c", 1), ("d", 1)])).is_ok());
    }

    #[test]
    fn what_is_on_one_side_only_is_worse() {
        let (better, worse) = differences(&counts(&[("old", 1)]), &counts(&[("new", 1)]));
        assert!(better.is_empty());
        assert_eq!(worse, ["new: 1, and none recorded", "old: recorded, but not counted any more"]);
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let record = Record { compiler: "1.2.3".into(), counts: counts(&[("b", 2), ("a", 1)]) };
        let read = Record::parse(&record.to_text().unwrap()).unwrap();
        assert_eq!((read.compiler, read.counts), (record.compiler, record.counts));
        assert!(Record::parse("{\"compiler\": \"1\", \"instructions\": {\"a\": \"b\"}}").is_err());
    }

    #[test]
    fn the_total_of_a_profile_is_found() {
        assert_eq!(total("events: Ir\nfn=(1)\n0 5\n\ntotals: 39075\n"), Some(39075));
        assert_eq!(total("totals: 0\n"), None);
        assert_eq!(total(""), None);
    }
}
