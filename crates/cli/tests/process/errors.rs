//! What goes wrong, says why, and ends with its code.

use super::support::*;

#[test]
fn a_command_line_that_does_not_parse_is_2() {
    for args in [
        &["plan", model(), "--ctx", "0"][..],
        &["plan", model(), "--ctx", "many"],
        &["plan", model(), "--batch", "0"],
        &["plan", model(), "--threads", "0"],
        &["plan", model(), "--kv-type", "f64"],
        &["plan", model(), "--frobnicate"],
        &["frobnicate"],
        &[],
        &["perplexity", model()],
    ] {
        run(args).assert_error(2, &[]);
    }
}

#[test]
fn a_bad_setting_of_the_memory_policy_is_3_and_quoted_with_its_source() {
    for option in ["--gpu-layers", "--gpu-mem", "--cpu-mem"] {
        run(&["inspect", model(), option, "banana"]).assert_error(3, &[option, "banana"]);
        for bad in ["-1", "4.5", "12abc", "banana"] {
            run(&["plan", model(), option, bad]).assert_error(3, &[option, bad]);
            let variable = format!("MINFER_{}", option[2..].to_uppercase().replace('-', "_"));
            finish(minfer(&["plan", model()]).env(&variable, bad)).assert_error(3, &[&variable, bad]);
        }
    }
}

#[test]
fn a_bad_variable_is_named_and_not_the_option_it_stands_for() {
    for (option, bad, code) in [
        ("--gpu-layers", "some", 3),
        ("--gpu-mem", "1.5", 3),
        ("--cpu-mem", "1GiB", 3),
        ("--gpu-reserve", "half", 2),
        ("--ctx", "0", 2),
        ("--batch", "many", 2),
        ("--kv-type", "f64", 2),
        ("--threads", "513", 2),
        ("--device", "tpu", 2),
        ("--device", "cuda:7", 1),
    ] {
        let variable = format!("MINFER_{}", option[2..].to_uppercase().replace('-', "_"));
        let plan = || minfer(&["plan", model()]);
        let refused = finish(plan().env(&variable, bad));
        refused.assert_error(code, &[&variable, bad]);
        assert!(!refused.err.contains(option), "{}", refused.err);
        // Where both are bad, the flag is the one that is read.
        let refused = finish(plan().args([option, bad]).env(&variable, "worse"));
        refused.assert_error(code, &[option, bad]);
        assert!(!refused.err.contains(&variable), "{}", refused.err);
    }
    finish(minfer(&["plan", model()]).env("MINFER_MEMORY_REPORT", "/no/such/report"))
        .assert_error(1, &["/no/such/report"]);
}

#[test]
fn an_empty_variable_counts_as_unset_and_a_flag_wins() {
    let plan =
        finish(minfer(&["plan", model(), "--json"]).env("MINFER_CTX", "").env("MINFER_GPU_LAYERS", ""))
            .json();
    assert_eq!(plan["request"]["source"], "default");
    let plan = finish(minfer(&["plan", model(), "--json", "--ctx", "7"]).env("MINFER_CTX", "9")).json();
    assert_eq!(plan["request"]["ctx"], 7);
    let plan = finish(minfer(&["plan", model()]).env("MINFER_CTX", "9").env("MINFER_JSON", "1")).json();
    assert_eq!(plan["request"]["ctx"], 9);
    finish(minfer(&["plan", model()]).env("MINFER_CTX", "0")).assert_error(2, &[]);
}

#[test]
fn a_model_that_is_not_there_or_no_model_is_4() {
    run(&["plan", "/no/such/model.gguf"]).assert_error(4, &["/no/such/model.gguf"]);
    run(&["plan", env!("CARGO_MANIFEST_DIR")]).assert_error(4, &["cli"]);
    run(&["plan", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")]).assert_error(4, &["Cargo.toml"]);
    run(&["plan", "nobody:7b"]).assert_error(4, &["nobody:7b", "smollm2:135m"]);
    run(&["run", mute_model().to_str().unwrap(), "a", "--no-template"]).assert_error(4, &["tokenizer"]);
}

#[test]
fn a_prompt_taken_for_a_model_is_explained() {
    run(&["run", "Why is the sky blue?"]).assert_error(4, &["minfer run smollm2:135m"]);
}

#[test]
fn a_reference_that_does_not_parse_is_2() {
    run(&["plan", "hf:only-an-owner"]).assert_error(2, &["hf:owner/repo"]);
}

#[test]
fn a_cache_that_cannot_be_written_is_1() {
    let plan = &["plan", "smollm2:135m"];
    finish(minfer(plan).env("MINFER_CACHE", "/proc/nope")).assert_error(1, &["/proc/nope"]);
    let homeless = &mut minfer(plan);
    homeless.env_remove("MINFER_CACHE").env_remove("HOME").env_remove("XDG_CACHE_HOME");
    finish(homeless).assert_error(1, &["MINFER_CACHE"]);
}

#[test]
fn a_device_that_is_not_there_is_1() {
    run(&["plan", model(), "--device", "cuda:3"]).assert_error(1, &["cuda:3"]);
    run(&["inspect", model(), "--device", "wgpu:x"]).assert_error(1, &["wgpu:x"]);
}

#[test]
fn a_prompt_longer_than_the_context_is_1_with_both_numbers() {
    run(&["run", model(), "0123456789", "--ctx", "8", "--no-template"])
        .assert_error(1, &["11", "8", "--ctx"]);
}

#[test]
fn a_token_beyond_the_vocabulary_is_1() {
    run(&["perplexity", model(), "--tokens", "1,128"]).assert_error(1, &["128"]);
    run(&["perplexity", model(), "--tokens", "1,x"]).assert_error(2, &["x"]);
}

#[test]
fn a_budget_too_small_is_3_and_the_plan_is_shown_all_the_same() {
    let refused = run(&["plan", model(), "--cpu-mem", "0"]);
    refused.assert_error(3, &["cpu", "MiB"]);
    assert!(refused.out.contains("DOES NOT FIT"), "{}", refused.out);

    let refused = run(&["plan", model(), "--cpu-mem", "0", "--json"]);
    refused.assert_error(3, &[]);
    let plan: serde_json::Value = serde_json::from_str(&refused.out).unwrap();
    assert_eq!((plan["fits"].as_bool(), plan["refusal"]["budget"].as_u64()), (Some(false), Some(0)));

    let report = scratch("refused.json");
    let refused = run(&["run", model(), "a", "--cpu-mem", "0", "--memory-report", report.to_str().unwrap()]);
    refused.assert_error(3, &["cpu", "MiB"]);
    assert_eq!(refused.out, "");
    assert!(std::fs::read_to_string(report).unwrap().contains("\"fits\":false"));
}

#[test]
fn text_from_a_file_is_escaped() {
    let path = write_model("escape", &[("general.architecture", "lla\u{1b}[2Jma\n".into())]);
    let refused = run(&["plan", &path]);
    refused.assert_error(4, &["\\u{1b}"]);
    assert!(!refused.err.contains('\u{1b}'));
    let inspected = run(&["inspect", &path]);
    assert_eq!(inspected.code, Some(0), "{}", inspected.err);
    assert!(!inspected.out.contains('\u{1b}') && inspected.out.contains("\\u{1b}"), "{}", inspected.out);
}

#[test]
fn a_chat_template_that_does_not_parse_counts_as_none_and_says_so() {
    let path = write_model("broken-template", &[("tokenizer.chat_template", "{% for %}".into())]);
    let options = ["-n", "4", "--temp", "0", "--ignore-eos"];
    let plain = run(&[&["run", &path, "a", "--no-template"][..], &options].concat());
    let answer = run(&[&["run", &path, "a"][..], &options].concat());
    assert_eq!((answer.code, &answer.out), (Some(0), &plain.out));
    assert!(answer.err.contains("tokenizer.chat_template") && plain.err.is_empty(), "{}", answer.err);
    run(&["run", &path, "a", "--system", "x"]).assert_error(1, &["tokenizer.chat_template"]);
}

#[test]
fn a_chat_template_that_is_no_text_is_4_and_named_once() {
    let path = write_model("number-template", &[("tokenizer.chat_template", 3u32.into())]);
    let refused = run(&["run", &path, "a", "-n", "1"]);
    refused.assert_error(4, &["tokenizer.chat_template", "found u32 3"]);
    assert_eq!(refused.err.matches(&path).count(), 1, "{}", refused.err);
    assert_eq!(run(&["run", &path, "a", "-n", "1", "--no-template"]).code, Some(0));
}

#[test]
fn a_chat_template_that_fails_names_the_way_around_it() {
    let path =
        write_model("failing-template", &[("tokenizer.chat_template", "{{ raise_exception('no') }}".into())]);
    run(&["run", &path, "a", "-n", "1"]).assert_error(1, &["--no-template"]);
    assert_eq!(run(&["run", &path, "a", "-n", "1", "--no-template"]).code, Some(0));
}

#[test]
fn a_text_that_is_not_utf8_or_not_there_is_1() {
    let path = scratch("latin1.txt");
    std::fs::write(&path, b"abc\xe4").unwrap();
    run(&["tokenize", model(), "--file", path.to_str().unwrap()]).assert_error(1, &["latin1.txt", "byte 3"]);
    run(&["tokenize", model(), "--file", "/no/such/text"]).assert_error(1, &["/no/such/text"]);
}

#[test]
fn an_empty_text_without_bos_is_1() {
    let path = write_model("no-bos", &[("tokenizer.ggml.add_bos_token", false.into())]);
    run(&["run", &path, "", "-n", "1"]).assert_error(1, &["empty"]);
    run(&["perplexity", &path, "--file", "/dev/null"]).assert_error(1, &["no tokens"]);
    assert_eq!(run(&["run", model(), "", "-n", "1"]).code, Some(0));
}
