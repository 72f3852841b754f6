//! The `minfer` command line: arguments in, results on standard output, everything else on standard error.

mod args;
mod commands;
mod env;
mod error;
mod escape;
mod output;
mod progress;
mod render;
mod session;
mod signal;

use std::process::ExitCode;

use args::Cli;
use error::CliError;
use output::{Style, color};

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(|panic| end_on_panic(panic)));
    signal::install();
    let result = match Cli::parse_args(std::env::args_os()) {
        Ok(cli) => commands::run(&cli.command),
        Err(answer) => return show_usage(&answer),
    };
    result.map_or_else(|error| ExitCode::from(show_error(&error)), |()| ExitCode::SUCCESS)
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
fn show_usage(answer: &clap::Error) -> ExitCode {
    let text = answer.render().to_string();
    if answer.use_stderr() {
        output::note(text.trim_end());
        return ExitCode::from(error::USAGE);
    }
    match output::print(&text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => ExitCode::from(show_error(&error)),
    }
}

/// A panic is a bug, wherever it happens. The user learns where, and the program ends.
fn end_on_panic(panic: &std::panic::PanicHookInfo<'_>) -> ! {
    let what = panic.payload_as_str().unwrap_or("no message");
    let at = panic.location().map(|at| format!(" at {}:{}", at.file(), at.line())).unwrap_or_default();
    output::note(&format!(
        "error: internal error{at}: {what}; please report it with the command that led to it"
    ));
    std::process::exit(i32::from(error::FAILED))
}
