//! The `minfer` command line: arguments in, results on standard output, everything else on standard error.

mod args;
mod commands;
mod cores;
mod env;
mod error;
mod escape;
mod loader;
mod machine;
mod output;
mod progress;
mod render;
mod session;
mod signal;

use std::panic;
use std::process::ExitCode;
use std::sync::OnceLock;

use args::Cli;
use error::CliError;
use output::{Style, color};

fn main() -> ExitCode {
    loader::hush();
    panic::set_hook(Box::new(remember_panic));
    signal::install();
    let code = panic::catch_unwind(run).unwrap_or_else(|_| {
        let what = PANIC.get().map_or("no message", String::as_str);
        output::note(&format!(
            "error: internal error: {what}; please report it with the command that led to it"
        ));
        error::FAILED
    });
    ExitCode::from(code)
}

fn run() -> u8 {
    match Cli::parse_args(std::env::args_os()) {
        Ok(cli) => commands::run(&cli.command).map_or_else(|error| show_error(&error), |()| 0),
        Err(answer) => show_usage(&answer),
    }
}

/// Says what went wrong, every line of it marked as an error.
fn show_error(error: &CliError) -> u8 {
    if !error.is_quiet() {
        let label = Style::of_stderr().paint(color::RED, "error:");
        output::note_styled(&format!("{label} {}", escape::lines(&error.to_string())));
    }
    error.exit_code()
}

/// Shows the help that was asked for, or why the command line doesn't parse.
fn show_usage(answer: &clap::Error) -> u8 {
    let text = answer.render().to_string();
    if answer.use_stderr() {
        output::note(text.trim_end());
        return error::USAGE;
    }
    output::print(&text).map_or_else(|error| show_error(&error), |()| 0)
}

/// The first panic. Whoever catches it decides whether that is an error of the program.
static PANIC: OnceLock<String> = OnceLock::new();

/// Keeps a panic from being printed: users get an error that says what to do about it.
fn remember_panic(panic: &panic::PanicHookInfo<'_>) {
    let what = panic.payload_as_str().unwrap_or("no message");
    let at = panic.location().map(|at| format!(" ({}:{})", at.file(), at.line())).unwrap_or_default();
    let _ = PANIC.set(format!("{what}{at}"));
}
