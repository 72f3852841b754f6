//! A device beside the CPU, in the real process: any that `minfer devices` lists, a software driver included.

use serde_json::Value;

use super::support::*;

/// The options that name the device; `None`, with a word, where there is none.
#[allow(clippy::print_stdout, reason = "a skipped test says so")]
fn device() -> Option<[&'static str; 2]> {
    let devices = run(&["devices", "--json"]).json();
    let found = devices["devices"].as_array().unwrap().iter().any(|device| device["backend"] == "wgpu");
    let required = std::env::var("MINFER_TEST_WGPU").is_ok_and(|value| value == "required");
    assert!(found || !required, "no adapter: {devices}");
    if !found {
        println!("no adapter: skipped");
    }
    found.then_some(["--device", "wgpu"])
}

fn with<'a>(args: &[&'a str], device: [&'a str; 2], more: &[&'a str]) -> Vec<&'a str> {
    [args, &device, more].concat()
}

fn categories(plan: &Value) -> Vec<(String, [u64; 5])> {
    let of = |backend: &Value| {
        let bytes = |key: &str| backend[key].as_u64().unwrap();
        let keys = ["weights_bytes", "kv_bytes", "pool_bytes", "staging_bytes", "scratch_bytes"];
        (backend["name"].as_str().unwrap().to_owned(), keys.map(bytes))
    };
    plan["backends"].as_array().unwrap().iter().map(of).collect()
}

#[test]
fn b4_every_split_holds_what_was_planned_and_says_the_same() {
    let Some(device) = device() else { return };
    let ask = ["run", model(), "abc", "--no-template", "--temp", "0", "-n", "4", "--json"];
    let on_cpu = run(&ask).json();
    for layers in ["0", "1", "2", "all", "auto"] {
        let split = ["--gpu-layers", layers];
        let plan = run(&with(&["plan", model(), "--json"], device, &split)).json();
        let ran = run(&with(&ask, device, &split)).json();
        assert_eq!(categories(&plan), categories(&ran["memory"]), "{layers}");
        let blocks = plan["offload"]["gpu_layers"].as_u64().unwrap();
        let names: Vec<_> = plan["blocks"].as_array().unwrap().iter().map(|b| b["backend"].clone()).collect();
        assert!(
            names.iter().enumerate().all(|(i, name)| (name == "wgpu") == ((i as u64) < blocks)),
            "{names:?}"
        );
        assert_eq!(ran["ids"], on_cpu["ids"], "{layers}");
    }
}

#[test]
fn o7_a_budget_in_the_environment_is_filled_and_never_exceeded() {
    let Some(device) = device() else { return };
    let mut last = 0;
    for mib in ["0", "1", "13", "16", "20", "24", "64", "256"] {
        let args = with(
            &["run", model(), "a", "--no-template", "-n", "2", "--json"],
            device,
            &["--gpu-layers", "auto"],
        );
        let ran = finish(minfer(&args).env("MINFER_GPU_MEM", mib)).json();
        let held = ran["memory"]["backends"][0]["total_bytes"].as_u64().unwrap();
        assert!(held <= mib.parse::<u64>().unwrap() << 20, "{held} of {mib} MiB");
        let blocks = ran["memory"]["offload"]["gpu_layers"].as_u64().unwrap();
        assert!(blocks >= last, "{blocks} blocks after {last}, {mib} MiB");
        last = blocks;
    }
    assert!(last > 0, "256 MiB hold the tiny model");
}

#[test]
fn o2_a_refusal_proposes_how_many_blocks_fit() {
    let Some(device) = device() else { return };
    let all = with(&["run", model(), "a"], device, &["--gpu-layers", "all", "--gpu-mem", "1"]);
    run(&all).assert_error(3, &["wgpu", "--gpu-mem"]);
    let bad = with(&["plan", model()], device, &["--gpu-layers", "banana"]);
    run(&bad).assert_error(3, &["banana", "--gpu-layers"]);
    finish(minfer(&["plan", model()]).env("MINFER_GPU_MEM", "x")).assert_error(3, &["MINFER_GPU_MEM", "x"]);
}

#[test]
fn a_bench_on_a_device_says_what_a_token_took() {
    let Some(device) = device() else { return };
    let bench = with(&["bench", model(), "-p", "4", "-n", "2", "-r", "1", "--json"], device, &[]);
    let bench = run(&bench).json();
    assert!(bench["device_bytes_per_second"].as_f64().unwrap() > 0.0);
    for result in bench["results"].as_array().unwrap() {
        let work = &result["device_work"];
        assert!(work["dispatches_per_token"].as_f64().unwrap() > 1.0, "{result}");
        assert!(work["bandwidth_share"].as_f64().unwrap() > 0.0, "{result}");
    }
}
