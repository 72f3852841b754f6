//! One file per command.

mod bench;
mod chat;
mod devices;
mod graphs;
mod inspect;
mod perplexity;
mod plan;
mod run;
mod stream;
mod tokenize;

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use crate::args::Command;
use crate::error::CliError;

/// Does what the command line asks for.
///
/// # Errors
/// What ends the program early; [`CliError::exit_code`] tells how.
pub(crate) fn run(command: &Command) -> Result<(), CliError> {
    match command {
        Command::Run(args) => run::run(args),
        Command::Plan(args) => plan::plan(args),
        Command::Bench(args) => bench::bench(args),
        Command::Perplexity(args) => perplexity::perplexity(args),
        Command::Tokenize(args) => tokenize::tokenize(args),
        Command::Inspect(args) => inspect::inspect(args),
        Command::Devices(args) => devices::devices(args),
    }
}

/// The text of a file; `-` is standard input.
fn read_text(path: &Path) -> Result<String, CliError> {
    if path == Path::new("-") {
        return read_stdin();
    }
    let what = path.display().to_string();
    match fs::read(path) {
        Ok(bytes) => text(bytes, what),
        Err(source) => Err(CliError::Read { what, source }),
    }
}

/// All of standard input.
fn read_stdin() -> Result<String, CliError> {
    let what = String::from("standard input");
    let mut bytes = Vec::new();
    match io::stdin().lock().read_to_end(&mut bytes) {
        Ok(_) => text(bytes, what),
        Err(source) => Err(CliError::Read { what, source }),
    }
}

fn text(bytes: Vec<u8>, what: String) -> Result<String, CliError> {
    String::from_utf8(bytes)
        .map_err(|error| CliError::NotText { what, offset: error.utf8_error().valid_up_to() })
}
