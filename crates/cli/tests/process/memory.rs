//! The memory policy in the real process: what the system counts is what the plan says.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use minfer_gguf::{OwnedValue, Writer};
use minfer_tensor::{DType, Shape};
use serde_json::Value;

use super::support::*;

const SMOLLM2: &str = "smollm2:135m";
const MIB: u64 = 1 << 20;
/// What a process may hold beside its plan (rule B4): 32 MiB and 2 %.
const fn slack(bytes: u64) -> u64 {
    32 * MIB + bytes / 50
}

fn planned(args: &[&str]) -> Value {
    run(&[&["plan", "--json", "--threads", "2"], args].concat()).json()["backends"][0].clone()
}

fn bytes(backend: &Value, key: &str) -> u64 {
    backend[key].as_u64().unwrap_or_else(|| panic!("{key} in {backend}"))
}

/// Runs a command to its end; the most anonymous memory that it had resident.
fn peak_anonymous(args: &[&str]) -> u64 {
    peak("RssAnon:", args)
}

/// Runs a command to its end; the most that a field of its status in proc(5) was, in bytes.
fn peak(field: &str, args: &[&str]) -> u64 {
    let child = minfer(&[args, &["--threads", "2"]].concat()).spawn().unwrap();
    let status = PathBuf::from(format!("/proc/{}/status", child.id()));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut peak = 0;
            while !done.load(Ordering::Relaxed) {
                peak = peak.max(resident(field, &status).unwrap_or(0));
                thread::sleep(Duration::from_micros(500));
            }
            peak
        });
        let output = child.wait_with_output().unwrap();
        done.store(true, Ordering::Relaxed);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        watch.join().unwrap()
    })
}

fn resident(field: &str, status: &Path) -> Option<u64> {
    let text = fs::read_to_string(status).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

fn assert_resident(model: &str, ctx: &str, commands: &[&[&str]]) {
    let plan = planned(&[model, "--ctx", ctx]);
    let anonymous = bytes(&plan, "anonymous_bytes");
    for command in commands {
        let peak = peak_anonymous(&[*command, &["--ctx", ctx]].concat());
        assert!(peak >= anonymous / 10 * 8, "{command:?} at {ctx}: {peak} of {anonymous} planned");
        assert!(peak <= anonymous + slack(anonymous), "{command:?} at {ctx}: {peak}, {anonymous} planned");
    }
}

#[test]
fn b4_resident_memory_is_what_was_planned() {
    for ctx in ["4096", "8192"] {
        let run = ["run", model(), "abc", "-n", "2"];
        let bench = ["bench", model(), "-p", "8", "-n", "2", "-r", "1"];
        let score = ["perplexity", model(), "--tokens", "5,6,7"];
        assert_resident(model(), ctx, &[&run, &bench, &score]);
    }
}

/// Beside the mapped file there is no copy of it, and beside the repacked copy no page of the file: 92 MiB more would
/// break the bound.
#[test]
fn s5_weights_are_resident_once_mapped_or_repacked() {
    for (repack, field) in [(&[][..], "VmRSS:"), (&["--no-repack"][..], "RssAnon:")] {
        let plan = planned(&[&[SMOLLM2, "--ctx", "512"], repack].concat());
        let (weights, anonymous) = (bytes(&plan, "weights_bytes"), bytes(&plan, "anonymous_bytes"));
        assert!(weights > 2 * slack(anonymous), "{weights} bytes would go unnoticed");
        let peak = peak(field, &[&["run", SMOLLM2, "Hello", "-n", "1", "--ctx", "512"], repack].concat());
        assert!(peak <= anonymous + slack(anonymous), "{repack:?}: {peak} resident, {anonymous} planned");
    }
}

#[test]
fn s7_a_mapped_file_is_counted_once_and_apart_from_the_rest() {
    let plan = planned(&[SMOLLM2, "--no-repack"]);
    let repacked = planned(&[SMOLLM2]);
    assert_eq!(
        bytes(&plan, "total_bytes"),
        bytes(&repacked, "total_bytes"),
        "the copy is as long as the file's"
    );
    assert_eq!(bytes(&repacked, "mapped_bytes"), 0, "nothing stays in the file");
    let inspected = run(&["inspect", SMOLLM2, "--json"]).json();
    let tensors = inspected["tensors"].as_array().unwrap().iter().map(|t| bytes(t, "bytes"));
    assert_eq!(bytes(&plan, "mapped_bytes"), tensors.sum::<u64>());
    let rest = ["kv_bytes", "pool_bytes", "scratch_bytes", "host_bytes"].map(|key| bytes(&plan, key));
    assert_eq!(bytes(&plan, "anonymous_bytes"), rest.iter().sum::<u64>());
}

/// Of a text of a mebibyte the predictions are 9 MiB and their JSON 27: neither is kept, only what is charged.
#[test]
fn b4_resident_memory_does_not_grow_with_the_text_that_is_scored() {
    const N_TOKENS: usize = 8700;
    // A special token is found whole, however long it is: many bytes, few tokens to compute.
    let (model, token) = model_with_a_long_token(121);
    let path = scratch("scored.txt");
    let peak = |n_tokens: usize| {
        fs::write(&path, token.repeat(n_tokens)).unwrap();
        let text = ["--file", path.to_str().unwrap(), "--json", "--top", "128", "-q"];
        peak_anonymous(&[&["perplexity", &model, "--ctx", "256"], &text[..]].concat())
    };
    let (anonymous, short, long) =
        (bytes(&planned(&[&model, "--ctx", "256"]), "anonymous_bytes"), peak(300), peak(N_TOKENS));
    let charged = (3 * token.len() * N_TOKENS + 4 * (N_TOKENS + 1)) as u64;
    assert!(long <= short + charged + 4 * MIB, "{short} bytes resident, {long} for a longer text");
    let planned = anonymous + charged;
    assert!(long <= planned + slack(planned), "{long} bytes resident, {planned} planned");
}

#[test]
fn b4_resident_memory_of_a_real_model_is_what_was_planned() {
    let tokens = vec!["5"; 64].join(",");
    for ctx in ["4096", "8192"] {
        let run = ["run", SMOLLM2, "Hello", "-n", "1"];
        let bench = ["bench", SMOLLM2, "-p", "8", "-n", "2", "-r", "1"];
        let score = ["perplexity", SMOLLM2, "--tokens", &tokens];
        assert_resident(SMOLLM2, ctx, &[&run, &bench, &score]);
    }
}

/// A control group of this test's own, removed at its end. `None` where none can be made: not root, or no controller.
struct Group {
    dir: PathBuf,
    limit: &'static str,
}

impl Group {
    fn new(name: &str) -> Option<Self> {
        let name = format!("minfer-test-{name}-{}", std::process::id());
        let places = [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
        places.into_iter().find_map(|(mount, limit)| {
            let dir = Path::new(mount).join(&name);
            fs::create_dir(&dir).ok()?;
            let group = Self { dir, limit };
            group.dir.join(limit).exists().then_some(group)
        })
    }

    /// Limits what a command may take, and starts it inside.
    fn spawn(&self, limit: u64, args: &[&str]) -> Child {
        fs::write(self.dir.join(self.limit), limit.to_string()).unwrap();
        let plain = minfer(args);
        let mut inside = Command::new("/bin/sh");
        inside.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(self.dir.join("cgroup.procs"));
        inside.arg(plain.get_program()).args(plain.get_args());
        for (name, value) in plain.get_envs() {
            match value {
                Some(value) => inside.env(name, value),
                None => inside.env_remove(name),
            };
        }
        let quiet = std::process::Stdio::piped;
        inside.stdin(std::process::Stdio::null()).stdout(quiet()).stderr(quiet()).spawn().unwrap()
    }

    fn run(&self, limit: u64, args: &[&str]) -> Outcome {
        outcome(&self.spawn(limit, args).wait_with_output().unwrap())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.dir);
    }
}

/// A prompt of `n` tokens for the model of ASCII characters, BOS included.
fn prompt(n: usize) -> String {
    "x".repeat(n - 1)
}

#[test]
fn b5_under_a_limit_of_plan_and_slack_nothing_is_killed() {
    let Some(group) = Group::new("killed") else { return };
    let words = "a ".repeat(480);
    let long = prompt(1020);
    for (model, ctx, prompt) in [(model(), "1024", &*long), (SMOLLM2, "512", &*words)] {
        let options = ["--ctx", ctx, "--threads", "2"];
        let total = bytes(&planned(&[model, "--ctx", ctx]), "total_bytes");
        let args =
            [&["run", model, prompt, "--no-template", "--ignore-eos", "--json"], &options[..]].concat();
        let answer = group.run(total + slack(total), &args).json();
        assert_eq!(answer["stop"], "context");
    }
}

#[test]
fn b5_under_a_limit_below_the_plan_auto_refuses_up_front() {
    let Some(group) = Group::new("refused") else { return };
    for model in [model(), SMOLLM2] {
        let total = bytes(&planned(&[model, "--ctx", "4096"]), "total_bytes");
        let args = ["run", model, "abc", "-n", "1", "--ctx", "4096", "--cpu-mem", "auto", "--threads", "2"];
        let refused = group.run(total, &args);
        refused.assert_error(3, &["budget"]);
        // That much isn't there.
        assert!(!refused.err.contains("--cpu-mem"), "{}", refused.err);
        assert_eq!(group.run(total + slack(total) + 8 * MIB, &args).code, Some(0));
    }
}

#[test]
fn b3_the_smallest_budget_runs_to_the_end_of_the_context_and_one_less_is_refused() {
    for (model, ctx) in [(model(), "256"), (SMOLLM2, "64")] {
        let options = ["--ctx", ctx, "--threads", "2"];
        let mib = bytes(&planned(&[model, "--ctx", ctx]), "total_bytes").div_ceil(MIB);
        let (enough, less) = (mib.to_string(), (mib - 1).to_string());
        let plan = [&["plan", model, "--cpu-mem", &enough], &options[..]].concat();
        assert_eq!(run(&plan).code, Some(0));
        let generate = ["run", model, "abc", "--no-template", "--ignore-eos", "--json", "--cpu-mem"];
        assert_eq!(run(&[&generate[..], &[&enough], &options].concat()).json()["stop"], "context");
        for command in [&generate[..], &["plan", model, "--cpu-mem"]] {
            run(&[command, &[&less], &options].concat()).assert_error(3, &["budget", "try --"]);
        }
    }
}

#[test]
fn b3_every_alternative_is_admitted_when_taken() {
    for (model, budget) in [(model(), "5"), (model(), "9"), (SMOLLM2, "140"), (SMOLLM2, "180")] {
        let options = [model, "--ctx", "4096", "--threads", "2", "--kv-type", "f32", "--cpu-mem", budget];
        let refused = run(&[&["plan", "--json"], &options[..]].concat());
        refused.assert_error(3, &["budget"]);
        let plan: Value = serde_json::from_str(&refused.out).unwrap();
        let alternatives = plan["alternatives"].as_array().unwrap();
        assert!(!alternatives.is_empty(), "{plan}");
        for other in alternatives {
            let taken: Vec<&str> =
                other["argv"].as_array().unwrap().iter().map(|w| w.as_str().unwrap()).collect();
            let plan = run(&[&["plan", "--json"], &options[..], &taken].concat()).json();
            assert_eq!(plan["backends"][0]["headroom_bytes"], other["left_bytes"], "{taken:?}");
            let score = ["perplexity", "--tokens", "5,6,7", "-q"];
            assert_eq!(run(&[&score[..], &options, &taken].concat()).code, Some(0), "{taken:?}");
        }
    }
}

#[test]
fn s4_a_refusal_names_the_keys_and_values_and_the_largest_context() {
    let args = ["plan", model(), "--ctx", "1000000", "--cpu-mem", "64"];
    let refused = run(&args);
    let kv = planned(&[model(), "--ctx", "1000000"])["kv_bytes"].as_u64().unwrap();
    refused.assert_error(3, &["try --ctx", &(kv / MIB).to_string()]);
}

/// The header of a llama of 7 billion weights, as the start of a download has it.
fn start_of_a_7b_model() -> String {
    /// Takes one write: the header.
    struct Header(Vec<u8>);
    impl std::io::Write for Header {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            if !self.0.is_empty() {
                return Err(std::io::ErrorKind::WriteZero.into());
            }
            self.0.extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let (n_embd, n_ff, n_vocab, n_layers) = (4096, 11_008, 32_000, 32u32);
    let number = |name: &str, value: usize| (format!("llama.{name}"), OwnedValue::from(value as u32));
    let pairs = [
        number("context_length", 4096),
        number("embedding_length", n_embd),
        number("block_count", n_layers as usize),
        number("feed_forward_length", n_ff),
        number("attention.head_count", 32),
        number("rope.dimension_count", 128),
    ];
    let tokens: OwnedValue = (0..n_vocab).map(|i| format!("token{i}")).collect();
    let writer = Writer::new()
        .kv("general.architecture", "llama")
        .kv("llama.attention.layer_norm_rms_epsilon", 1e-5f32)
        .kv("tokenizer.ggml.model", "gpt2")
        .kv("tokenizer.ggml.tokens", tokens);
    let mut writer = pairs.into_iter().fold(writer, |writer, (key, value)| writer.kv(key, value));
    // Never read, so never in memory.
    let data = vec![0; n_vocab * n_embd];
    let mut add = |name: String, dtype: DType, dims: &[usize]| {
        let shape = Shape::new(dims).unwrap();
        let len = shape.nbytes(dtype).unwrap().to_usize().unwrap();
        let taken = std::mem::take(&mut writer);
        writer = taken.tensor(name, dtype, shape, &data[..len]);
    };
    add("token_embd.weight".into(), DType::Q4_0, &[n_embd, n_vocab]);
    add("output.weight".into(), DType::Q4_0, &[n_embd, n_vocab]);
    add("output_norm.weight".into(), DType::F32, &[n_embd]);
    for block in 0..n_layers {
        let mut add =
            |name: &str, dtype, dims: &[usize]| add(format!("blk.{block}.{name}.weight"), dtype, dims);
        for name in ["attn_q", "attn_k", "attn_v", "attn_output"] {
            add(name, DType::Q4_0, &[n_embd, n_embd]);
        }
        add("ffn_gate", DType::Q4_0, &[n_embd, n_ff]);
        add("ffn_up", DType::Q4_0, &[n_embd, n_ff]);
        add("ffn_down", DType::Q4_0, &[n_ff, n_embd]);
        add("attn_norm", DType::F32, &[n_embd]);
        add("ffn_norm", DType::F32, &[n_embd]);
    }
    let mut header = Header(Vec::new());
    assert!(writer.write_to(&mut header).is_err(), "the data isn't wanted");
    let path = scratch("start-of-7b.gguf");
    fs::write(&path, header.0).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn b4_an_unfinished_download_is_planned_but_not_run() {
    let path = start_of_a_7b_model();
    let planned = run(&["plan", &path, "--json"]);
    assert!(planned.err.contains("missing"), "{}", planned.err);
    let weights = bytes(&planned.json()["backends"][0], "weights_bytes");
    assert!((3_700..3_900).contains(&(weights / 1_000_000)), "{weights}");
    assert!(run(&["plan", &path]).out.contains("missing"));
    let inspected = run(&["inspect", &path]);
    assert!(inspected.code == Some(0) && inspected.err.contains("missing"), "{}", inspected.err);
    for command in [&["run", &path, "a"][..], &["bench", &path], &["perplexity", &path, "--tokens", "1"]] {
        run(command).assert_error(4, &["token_embd.weight"]);
    }
}
