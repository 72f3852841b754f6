//! Streams that end early or are full.

use std::fs::File;
use std::io::Read;
use std::process::Stdio;

use super::support::*;

const LONG: [&str; 6] = ["abc", "-n", "3000", "--ctx", "4000", "--ignore-eos"];

#[test]
fn a_closed_pipe_ends_quietly() {
    let mut child = minfer(&[&["run", model()][..], &LONG].concat()).spawn().unwrap();
    let mut first = [0; 1];
    let mut out = child.stdout.take().unwrap();
    out.read_exact(&mut first).unwrap();
    drop(out);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(!String::from_utf8_lossy(&output.stderr).contains("error"));
}

#[test]
fn nobody_on_standard_error_is_no_reason_to_stop() {
    let mut child = minfer(&["run", model(), "abc", "-n", "4", "-v"]).spawn().unwrap();
    drop(child.stderr.take());
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(0));
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_1() {
    for args in [
        &["run", model(), "abc", "-n", "4"][..],
        &["run", model(), "abc", "-n", "4", "--json"],
        &["plan", model()],
        &["inspect", model(), "--json"],
        &["--help"],
    ] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let outcome = finish(minfer(args).stdout(Stdio::from(full)));
        outcome.assert_error(1, &["standard output"]);
    }
    run(&["run", model(), "abc", "-n", "4", "--memory-report", "/dev/full"]).assert_error(1, &["/dev/full"]);
    run(&["plan", model(), "--dump-graph", "/dev/full"]).assert_error(1, &["/dev/full"]);
}

#[test]
fn a_report_that_cannot_be_written_is_known_before_the_work() {
    let outcome = run(&["run", model(), "abc", "-n", "4", "--memory-report", "/no/such/folder/report"]);
    outcome.assert_error(1, &["/no/such/folder/report"]);
    assert_eq!(outcome.out, "");
}

#[test]
fn output_does_not_replace_a_model() {
    let copy = scratch("not-to-be-replaced.gguf");
    std::fs::copy(model(), &copy).unwrap();
    let target = copy.to_str().unwrap();
    for args in [
        &["run", target, "abc", "-n", "1", "--memory-report", target][..],
        &["plan", target, "--svg", target],
        &["plan", target, "--dump-graph", target],
    ] {
        run(args).assert_error(1, &["not-to-be-replaced.gguf", "overwritten"]);
    }
    assert_eq!(std::fs::read(&copy).unwrap(), std::fs::read(model()).unwrap());
}
