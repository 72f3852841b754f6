//! Generation.

use super::support::*;

fn text(args: &[&str]) -> String {
    let answer = run(args);
    assert_eq!(answer.code, Some(0), "{}", answer.err);
    answer.out
}

#[test]
fn greedy_is_the_same_whatever_threads_and_batch_are() {
    let prompt = "The quick brown fox jumps over the lazy dog and runs.";
    let base = ["run", model(), prompt, "-n", "12", "--temp", "0", "--ignore-eos"];
    let texts = [["1", "1"], ["2", "8"], ["3", "512"]]
        .map(|[threads, batch]| text(&[&base[..], &["--threads", threads, "--batch", batch]].concat()));
    assert!(!texts[0].trim().is_empty());
    assert!(texts.iter().all(|text| *text == texts[0]), "{texts:?}");
    assert_eq!(text(&[&base[..], &["--no-repack"]].concat()), texts[0]);
}

#[test]
fn a_seed_repeats_a_random_answer() {
    let ask = |seed: &str| {
        text(&[
            "run",
            model(),
            "abc",
            "-n",
            "24",
            "--temp",
            "2",
            "--top-k",
            "0",
            "--ignore-eos",
            "--seed",
            seed,
        ])
    };
    assert_eq!(ask("7"), ask("7"));
    assert_ne!(ask("7"), ask("8"));
}

#[test]
fn verbose_prints_the_seed_and_quiet_nothing() {
    let answer = run(&["run", model(), "abc", "-n", "2", "--seed", "42", "-v"]);
    assert!(answer.err.contains("seed: 42") && answer.err.contains("decode:"), "{}", answer.err);
    assert_eq!(run(&["run", model(), "abc", "-n", "2", "-q", "--ctx", "1000"]).err, "");
}

#[test]
fn standard_input_is_a_prompt() {
    let args = ["run", model(), "-n", "4", "--temp", "0", "--ignore-eos"];
    let piped = run_with_input(&args, "abc\n");
    assert_eq!(piped.code, Some(0), "{}", piped.err);
    assert_eq!(piped.out, text(&["run", model(), "abc", "-n", "4", "--temp", "0", "--ignore-eos"]));
}

#[test]
fn the_template_is_used_unless_told_otherwise() {
    let count =
        |args: &[&str]| run(&[&["run", chat_model(), "abc", "-n", "1", "--json"][..], args].concat()).json();
    let plain = count(&["--no-template"])["prompt_tokens"].as_u64().unwrap();
    let templated = count(&[])["prompt_tokens"].as_u64().unwrap();
    let with_system = count(&["--system", "x"])["prompt_tokens"].as_u64().unwrap();
    assert!(plain < templated && templated < with_system, "{plain} {templated} {with_system}");
    run(&["run", model(), "abc", "--system", "x"]).assert_error(1, &["--system", "chat template"]);
}

#[test]
fn a_stop_text_ends_before_itself() {
    let whole = text(&["run", model(), "abc", "-n", "16", "--temp", "0", "--ignore-eos"]);
    let stop: String = whole.chars().skip(5).take(2).collect();
    let answer =
        run(&["run", model(), "abc", "-n", "16", "--temp", "0", "--ignore-eos", "--json", "--stop", &stop])
            .json();
    assert_eq!(answer["stop"], "stop");
    assert_eq!(answer["text"].as_str().unwrap(), &whole[..whole.find(&stop).unwrap()]);
}

#[test]
fn the_end_of_the_context_ends_the_answer() {
    let answer = run(&["run", model(), "abc", "--ctx", "8", "--ignore-eos", "--json"]).json();
    assert_eq!(answer["stop"], "context");
}

#[test]
fn graphs_are_written_as_text_or_for_graphviz() {
    let (plain, dot) = (scratch("graph.txt"), scratch("graph.dot"));
    text(&["run", model(), "abc", "-n", "1", "--dump-graph", plain.to_str().unwrap()]);
    text(&["plan", model(), "--dump-graph", dot.to_str().unwrap()]);
    assert!(std::fs::read_to_string(plain).unwrap().contains("# 1 tokens, 1 outputs\n"));
    assert!(std::fs::read_to_string(dot).unwrap().contains("digraph"));
}

#[test]
fn a_plan_is_drawn() {
    let path = scratch("plan.svg");
    text(&["plan", model(), "--svg", path.to_str().unwrap()]);
    assert!(std::fs::read_to_string(path).unwrap().starts_with("<svg "));
}
