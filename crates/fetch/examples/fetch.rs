//! `cargo run -p minfer-fetch --example fetch -- CACHE MODEL`: fetches a model and prints its path.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use minfer_fetch::{Fetcher, Options, Progress};
use std::process::ExitCode;

struct Lines;

impl Progress for Lines {
    fn begin(&mut self, what: &str, total: Option<u64>) {
        eprintln!("{what}: {total:?} bytes");
    }
    fn advance(&mut self, _done: u64) {}
    fn end(&mut self) {}
    fn note(&mut self, text: &str) {
        eprintln!("{text}");
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [cache, model] = args.as_slice() else {
        eprintln!("usage: fetch CACHE MODEL");
        return ExitCode::from(2);
    };
    match Fetcher::new(Options::new(cache.into())).resolve(Some(model), &mut Lines) {
        Ok(path) => {
            println!("{}", path.display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
