//! The shapes that scripts rely on.

use serde_json::Value;

use super::support::*;

fn keys(object: &Value) -> Vec<&str> {
    object.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn run_tells_text_ids_and_memory() {
    let answer = run(&["run", model(), "abc", "-n", "3", "--temp", "0", "--ignore-eos", "--json"]).json();
    assert_eq!(
        keys(&answer),
        ["schema_version", "text", "prompt_tokens", "tokens", "ids", "stop", "seconds", "memory"]
    );
    assert_eq!((answer["prompt_tokens"].as_u64(), answer["tokens"].as_u64()), (Some(3), Some(3)));
    assert_eq!(answer["ids"].as_array().unwrap().len(), 3);
    assert_eq!(answer["stop"], "length");
    assert_eq!(keys(&answer["seconds"]), ["load", "prefill", "decode"]);
    assert!(answer["memory"]["backends"][0]["live_bytes"].is_u64());
}

#[test]
fn a_plan_has_its_shape_and_adds_up() {
    let plan = run(&["plan", model(), "--json", "--ctx", "64"]).json();
    assert_eq!(
        keys(&plan),
        [
            "schema_version",
            "model",
            "request",
            "offload",
            "backends",
            "blocks",
            "repack_choices",
            "kv_bytes_per_token",
            "alternatives",
            "fits",
            "refusal"
        ]
    );
    let cpu = &plan["backends"][0];
    let bytes = |key: &str| cpu[key].as_u64().unwrap_or_else(|| panic!("{key} in {cpu}"));
    let categories = ["weights_bytes", "kv_bytes", "pool_bytes", "scratch_bytes", "host_bytes"];
    assert_eq!(categories.iter().map(|key| bytes(key)).sum::<u64>(), bytes("total_bytes"));
    assert_eq!(bytes("mapped_bytes") + bytes("anonymous_bytes"), bytes("total_bytes"));
    assert_eq!(bytes("kv_bytes"), 64 * plan["kv_bytes_per_token"].as_u64().unwrap());
    assert!(cpu["live_bytes"].is_null() && cpu["peak_live_bytes"].is_null());
    assert_eq!((plan["request"]["ctx"].as_u64(), plan["fits"].as_bool()), (Some(64), Some(true)));
}

#[test]
fn a_plan_shows_both_repack_choices_whichever_is_asked_for() {
    let plan = |more: &[&str]| run(&[&["plan", model(), "--ctx", "64", "--json"], more].concat());
    let (repacked, mapped) = (plan(&[]).json(), plan(&["--no-repack"]).json());
    let choices = repacked["repack_choices"].as_array().unwrap();
    assert_eq!(repacked["repack_choices"], mapped["repack_choices"]);
    for (choice, plan) in choices.iter().zip([&repacked, &mapped]) {
        assert_eq!(keys(choice), ["repack", "mapped_bytes", "anonymous_bytes", "fits"]);
        for key in ["mapped_bytes", "anonymous_bytes"] {
            assert_eq!(choice[key], plan["backends"][0][key], "{key}");
        }
        assert_eq!((&choice["repack"], &choice["fits"]), (&plan["request"]["repack"], &Value::Bool(true)));
    }
    let paged = plan(&["--allow-paging"]).json();
    assert_eq!(paged["repack_choices"], repacked["repack_choices"]);
    let text = run(&["plan", model(), "--ctx", "64"]).out;
    let line =
        |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{text}"));
    assert!(line("repack ").ends_with("this plan") && line("--no-repack ").contains("mapped"), "{text}");
    // The same budget refuses both, or admits both by the same code.
    let refused = run(&["plan", model(), "--ctx", "64", "--cpu-mem", "1", "--json"]).out;
    let refused: Value = serde_json::from_str(&refused).unwrap();
    assert!(refused["repack_choices"].as_array().unwrap().iter().all(|choice| choice["fits"] == false));
}

#[test]
fn a_memory_report_equals_its_plan_but_for_the_host() {
    let path = scratch("report.json");
    let options = ["--ctx", "64", "--threads", "2", "--batch", "16"];
    let plan = run(&[&["plan", model(), "--json"][..], &options].concat()).json();
    let answer =
        run(&[&["run", model(), "abc", "-n", "9", "--memory-report", path.to_str().unwrap()][..], &options]
            .concat());
    assert_eq!(answer.code, Some(0), "{}", answer.err);
    let report: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(keys(&report), keys(&plan));
    let (planned, measured) = (&plan["backends"][0], &report["backends"][0]);
    for key in ["weights_bytes", "kv_bytes", "pool_bytes", "scratch_bytes"] {
        assert_eq!(planned[key], measured[key], "{key}");
    }
    assert!(measured["host_bytes"].as_u64() <= planned["host_bytes"].as_u64());
    assert!(measured["peak_live_bytes"].as_u64() > Some(0));
}

#[test]
fn a_command_that_loads_nothing_reports_its_plan() {
    for command in ["tokenize", "inspect", "plan"] {
        let path = scratch(&format!("{command}.json"));
        let mut args = vec![command, model(), "--memory-report", path.to_str().unwrap()];
        if command == "tokenize" {
            args.extend(["--file", "/dev/null"]);
        }
        assert_eq!(run(&args).code, Some(0), "{command}");
        let report: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(report["fits"], true);
    }
}

#[test]
fn bench_gives_speed_per_test() {
    let bench = run(&["bench", model(), "-p", "16", "-n", "4", "-r", "2", "--depth", "8", "--json"]).json();
    assert_eq!(keys(&bench), ["schema_version", "model", "threads", "device", "results", "memory"]);
    let tests: Vec<&str> =
        bench["results"].as_array().unwrap().iter().map(|r| r["test"].as_str().unwrap()).collect();
    assert_eq!(tests, ["pp16@d8", "tg4@d8"]);
    let speed = &bench["results"][0]["tokens_per_second"];
    assert_eq!(keys(speed), ["mean", "stddev", "runs"]);
    assert_eq!(speed["runs"].as_array().unwrap().len(), 2);
    for result in bench["results"].as_array().unwrap() {
        assert_eq!(keys(result), ["test", "tokens_per_second", "work", "cpu_limits"]);
        let (work, limits) = (&result["work"], &result["cpu_limits"]);
        let per_second = ["bytes_per_second", "macs_per_second"];
        let per_token = ["weight_bytes_per_token", "kv_bytes_per_token", "macs_per_token"];
        assert_eq!(keys(work), [&per_token[..], &per_second].concat());
        let shares = ["read_share", "mac_share"];
        let differences = ["read_difference", "mac_difference", "unsteady", "runs"];
        assert_eq!(keys(limits), [&per_second[..], &shares, &differences].concat());
        let positive =
            |object: &Value, key: &str| assert!(object[key].as_f64() > Some(0.0), "{key} {object}");
        [&per_token[..], &per_second].concat().iter().for_each(|key| positive(work, key));
        [per_second, shares].concat().iter().for_each(|key| positive(limits, key));
        let runs = limits["runs"].as_array().unwrap();
        assert_eq!(runs.len(), 2);
        for run in runs {
            assert_eq!(keys(run), [per_second, shares].concat());
            assert!(per_second.iter().all(|key| run[key].as_array().unwrap().len() == 2), "{run}");
        }
    }
    // The mean of four steps that see 9 to 12 positions.
    let kv = bench["results"][1]["work"]["kv_bytes_per_token"].as_f64().unwrap();
    let per_position = bench["memory"]["kv_bytes_per_token"].as_f64().unwrap();
    assert_eq!(kv, per_position * (9 + 10 + 11 + 12) as f64 / 4.0);
}

#[test]
fn bench_prints_a_table_of_text_or_markdown() {
    let bench = ["bench", model(), "-p", "16", "-n", "2", "-r", "1", "-q"];
    let text = run(&bench).out;
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    for word in ["GB/s", "of read", "GMAC/s", "of peak", "pp16", "tg2"] {
        assert!(text.contains(word), "{text}");
    }
    let markdown = run(&[&bench[..], &["--markdown"]].concat()).out;
    let table: Vec<&str> = markdown.lines().filter(|line| line.starts_with('|')).collect();
    assert_eq!(table.len(), 4, "{markdown}");
    assert!(table.iter().all(|line| line.matches('|').count() == 8), "{markdown}");
    assert!(table[3].starts_with("| tg2 | "), "{markdown}");
    run(&[&bench[..], &["--markdown", "--json"]].concat()).assert_error(2, &["--markdown", "--json"]);
}

#[test]
fn perplexity_scores_tokens_of_a_model_without_a_vocabulary() {
    let mute = mute_model();
    let score =
        run(&["perplexity", mute.to_str().unwrap(), "--tokens", "5,6,7", "--top", "2", "--json"]).json();
    assert_eq!(score["n_tokens"], 3);
    let positions = score["positions"].as_array().unwrap();
    assert_eq!(keys(&positions[0]), ["token", "logprob", "logsumexp", "top"]);
    assert!(positions[1]["logprob"].as_f64() < Some(0.0) && positions[2]["logprob"].is_null());
    assert_eq!(positions[0]["top"][0].as_array().unwrap().len(), 2);
    let mean = -(positions[0]["logprob"].as_f64().unwrap() + positions[1]["logprob"].as_f64().unwrap()) / 2.0;
    assert!((score["mean_nll"].as_f64().unwrap() - mean).abs() < 1e-9);
    assert!((score["perplexity"].as_f64().unwrap() - mean.exp()).abs() < 1e-6);
}

#[test]
fn a_text_longer_than_the_context_is_scored_in_windows_and_says_so() {
    let score =
        run_with_input(&["perplexity", model(), "--file", "-", "--ctx", "8", "--json"], &"abcd ".repeat(8));
    assert!(score.err.contains("windows"), "{}", score.err);
    let score = score.json();
    assert_eq!(score["n_tokens"].as_u64(), Some(score["positions"].as_array().unwrap().len() as u64));
}

#[test]
fn tokenize_gives_ids_and_pieces() {
    let tokens = run_with_input(&["tokenize", model(), "--file", "-", "--json"], "<|im_end|>ab c\n").json();
    assert_eq!(keys(&tokens), ["schema_version", "ids", "pieces"]);
    assert_eq!(tokens["pieces"], serde_json::json!(["<|bos|>", "<|im_end|>", "ab", " ", "c", "\n"]));
    assert_eq!(tokens["ids"][0], 0);
    let plain =
        run_with_input(&["tokenize", model(), "--file", "-", "--json", "--no-special"], "<|bos|>").json();
    assert_eq!(plain["pieces"].as_array().unwrap().len(), 7);
}

#[test]
fn inspect_lists_metadata_and_tensors() {
    let contents = run(&["inspect", model(), "--json"]).json();
    assert_eq!(keys(&contents), ["schema_version", "metadata", "tensors"]);
    assert_eq!(contents["metadata"]["general.architecture"], "llama");
    assert_eq!(contents["metadata"]["tokenizer.ggml.tokens"].as_array().unwrap().len(), 128);
    assert_eq!(keys(&contents["tensors"][0]), ["name", "dtype", "shape", "offset", "bytes"]);
}

#[test]
fn devices_lists_the_host() {
    let devices = run(&["devices", "--json"]).json();
    let cpu = devices["devices"].as_array().unwrap().last().unwrap();
    assert_eq!(keys(cpu), ["backend", "name", "software", "unified", "memory"]);
    assert_eq!((cpu["backend"].as_str(), cpu["memory"]["outcome"].as_str()), (Some("cpu"), Some("reported")));
    assert_eq!(keys(&cpu["memory"]), ["outcome", "free", "total", "error"]);
}
