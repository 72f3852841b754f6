use super::*;

fn parse(args: &[&str]) -> Result<Cli, clap::Error> {
    Cli::parse_args(std::iter::once("minfer").chain(args.iter().copied()).map(OsString::from))
}

fn engine(args: &[&str]) -> EngineArgs {
    match parse(args).unwrap().command {
        Command::Plan(plan) => plan.model.engine,
        other => panic!("expected plan, found {other:?}"),
    }
}

#[test]
fn the_definition_is_consistent() {
    definition().debug_assert();
}

#[test]
fn settings_of_the_memory_policy_are_kept_as_written() {
    for bad in ["-1", "4.5", "12abc", "banana", "--5", ""] {
        let options = engine(&["plan", "m.gguf", &format!("--gpu-layers={bad}"), "--cpu-mem", bad]).options();
        let (layers, mem) = (options.gpu_layers.unwrap(), options.cpu_mem.unwrap());
        assert_eq!((layers.value.as_str(), layers.source.as_str()), (bad, "--gpu-layers"));
        assert_eq!((mem.value.as_str(), mem.source.as_str()), (bad, "--cpu-mem"));
        assert_eq!(options.gpu_mem, None);
    }
}

#[test]
fn a_negative_number_is_a_value_and_named_as_one() {
    for option in ["--ctx", "--temp", "--top-p", "--seed", "-n"] {
        let error = parse(&["run", "m.gguf", option, "-1"]).unwrap_err().to_string();
        assert!(error.contains("invalid value '-1' for '-"), "{error}");
    }
}

#[test]
fn numbers_have_a_range() {
    for bad in [
        ["--ctx", "0"],
        ["--ctx", "-1"],
        ["--ctx", "many"],
        ["--ctx", "4294967296"],
        ["--batch", "0"],
        ["--threads", "0"],
        ["--threads", "513"],
        ["--kv-type", "f64"],
        ["--gpu-reserve", "half"],
        ["--device", "tpu"],
        ["--device", "cuda:x"],
    ] {
        assert_eq!(parse(&["plan", "m.gguf", bad[0], bad[1]]).unwrap_err().exit_code(), 2, "{bad:?}");
    }
}

#[test]
fn sampling_values_have_a_range() {
    for bad in [
        ["--temp", "-1"],
        ["--temp", "nan"],
        ["--temp", "inf"],
        ["--top-p", "1.5"],
        ["--min-p", "-0.1"],
        ["--repeat-penalty", "0"],
        ["--top-k", "-1"],
        ["--seed", "x"],
        ["--stop", ""],
        ["-n", "-1"],
    ] {
        assert_eq!(parse(&["run", "m.gguf", "hi", bad[0], bad[1]]).unwrap_err().exit_code(), 2, "{bad:?}");
    }
}

#[test]
fn the_last_of_a_repeated_option_wins() {
    assert_eq!(engine(&["plan", "--ctx", "5", "--ctx", "7"]).ctx, Some(7));
}

#[test]
fn devices_have_spellings() {
    assert_eq!("wgpu:Radeon RX".parse(), Ok(Device::Wgpu(Some("Radeon RX".into()))));
    assert_eq!("cuda:1".parse(), Ok(Device::Cuda(Some(1))));
    for text in ["auto", "cpu", "wgpu", "wgpu:x", "cuda", "cuda:0"] {
        assert_eq!(text.parse::<Device>().unwrap().to_string(), text);
    }
}

#[test]
fn perplexity_scores_one_of_text_and_tokens() {
    assert!(parse(&["perplexity", "m.gguf"]).is_err());
    assert!(parse(&["perplexity", "m.gguf", "--file", "f", "--tokens", "1"]).is_err());
    let Command::Perplexity(args) = parse(&["perplexity", "m.gguf", "--tokens", "1,2,3"]).unwrap().command
    else {
        panic!("expected perplexity")
    };
    assert_eq!(args.text.tokens, Some(vec![1, 2, 3]));
}

#[test]
fn without_a_number_of_threads_it_is_what_the_process_may_use() {
    assert!((1..=512).contains(&engine(&["plan"]).n_threads()));
    assert_eq!(engine(&["plan", "--threads", "3"]).n_threads(), 3);
}
