//! Ctrl-C.
#![cfg(unix)]

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};

use super::support::*;

fn interrupt(child: &Child) {
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
}

#[test]
fn ctrl_c_in_decode_keeps_what_was_printed() {
    let report = scratch("interrupted.json");
    let args = [
        "abc",
        "-n",
        "90000",
        "--ctx",
        "100000",
        "--ignore-eos",
        "--memory-report",
        report.to_str().unwrap(),
    ];
    let mut child = minfer(&[&["run", model()][..], &args].concat()).spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    let mut text = vec![0; 8];
    out.read_exact(&mut text).unwrap();
    interrupt(&child);
    out.read_to_end(&mut text).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(text.len() > 8 && text.ends_with(b"\n"));
    assert!(std::fs::read_to_string(report).unwrap().contains("\"backends\""));
}

#[test]
fn ctrl_c_in_prefill_ends_with_130() {
    let mut child = minfer(&["run", model(), "--ctx", "100000", "--batch", "64", "-v", "--json"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&[b'a'; 90000]).unwrap();
    let mut err = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(err.any(|line| line.unwrap().starts_with("seed: ")));
    interrupt(&child);
    let mut out = String::new();
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    err.for_each(drop);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    // The signal may come before the work asks for it: then there is no object.
    if !out.is_empty() {
        let answer: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!((answer["stop"].as_str(), answer["tokens"].as_u64()), (Some("cancelled"), Some(0)));
    }
}

#[test]
fn ctrl_c_before_there_is_a_prompt_ends_with_130() {
    let mut child = minfer(&["run", model(), "-v"]).stdin(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    interrupt(&child);
    assert_eq!(child.wait().unwrap().code(), Some(130));
}
