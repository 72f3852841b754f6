//! `MINFER_CPU_LEVEL`: the kernels that the CPU runs.

use minfer_backend_cpu::Kernels;
use serde_json::Value;

use super::support::*;

const VARIABLE: &str = "MINFER_CPU_LEVEL";

/// What the command line gives with each kind of kernels, and with weights repacked or left in the file.
fn with_each(args: &[&str]) -> Vec<Value> {
    let layouts = [&[][..], &["--no-repack"]];
    let runs = Kernels::available().iter().flat_map(|kernels| layouts.map(|layout| (kernels.name(), layout)));
    runs.map(|(level, layout)| finish(minfer(args).args(layout).env(VARIABLE, level)).json()).collect()
}

#[test]
fn logits_have_the_same_bits_with_each() {
    let tokens: Vec<String> = (5..45).map(|id| id.to_string()).collect();
    for kv_type in ["f16", "q8_0"] {
        let score = ["perplexity", mixed_model(), "--tokens", &tokens.join(","), "--top", "128", "--json"];
        let scores = with_each(&[&score[..], &["--kv-type", kv_type]].concat());
        assert_eq!(scores[0]["positions"].as_array().unwrap().len(), tokens.len());
        assert!(scores.iter().all(|score| score["positions"] == scores[0]["positions"]), "{kv_type}");
    }
}

#[test]
fn greedy_ids_are_the_same_with_each() {
    let answers =
        with_each(&["run", mixed_model(), "abc", "-n", "12", "--temp", "0", "--ignore-eos", "--json"]);
    assert_eq!(answers[0]["ids"].as_array().unwrap().len(), 12);
    assert!(answers.iter().all(|answer| answer["ids"] == answers[0]["ids"]), "{answers:?}");
}

#[test]
fn the_plan_and_the_devices_name_it() {
    for level in Kernels::available().iter().map(|kernels| kernels.name()) {
        let named = |args: &[&str]| finish(minfer(args).env(VARIABLE, level)).json();
        let plan = named(&["plan", model(), "--threads", "1", "--json"]);
        assert_eq!(plan["request"]["cpu_level"], level);
        assert_eq!(plan["backends"][0]["device"], format!("cpu, 1 thread, {level}"));
        let devices = named(&["devices", "--json"]);
        let host = devices["devices"].as_array().unwrap().last().unwrap();
        assert!(host["name"].as_str().unwrap().ends_with(level), "{host}");
    }
}

#[test]
fn one_that_is_not_there_is_2_and_those_that_are_are_named() {
    let available: Vec<&str> = Kernels::available().iter().map(|kernels| kernels.name()).collect();
    for args in [&["plan", model()][..], &["run", model(), "a"], &["inspect", model()], &["devices"]] {
        let refused = finish(minfer(args).env(VARIABLE, "mmx\n"));
        refused.assert_error(2, &[&[VARIABLE, "\"mmx\\n\""], &available[..]].concat());
        assert_eq!(refused.err.lines().count(), 1, "{}", refused.err);
    }
    // Nothing is fetched for it either.
    let unfetched =
        finish(minfer(&["plan", "smollm2:135m"]).env(VARIABLE, "AVX2").env("MINFER_CACHE", "/proc/nope"));
    unfetched.assert_error(2, &[VARIABLE]);
    assert_eq!(finish(minfer(&["plan", model()]).env(VARIABLE, "")).code, Some(0));
}
