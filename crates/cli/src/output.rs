//! The two streams. Results go to standard output, everything else to standard error.

use std::io::{self, IsTerminal, Write};

use serde::Serialize;

use crate::env;
use crate::error::CliError;
use crate::escape;

/// The version of every JSON object that minfer prints.
pub(crate) const SCHEMA_VERSION: u32 = 1;

/// A JSON object with the version of its shape in front.
#[derive(Serialize)]
pub(crate) struct Versioned<T> {
    schema_version: u32,
    #[serde(flatten)]
    content: T,
}

impl<T: Serialize> Versioned<T> {
    /// `content`, which must be a struct or a map, in the current version.
    pub(crate) fn new(content: T) -> Self {
        Self { schema_version: SCHEMA_VERSION, content }
    }
}

/// Writes `text` to standard output, at once.
///
/// # Errors
/// [`CliError::ClosedPipe`] if nobody reads any more, [`CliError::Write`] for anything else, a full disk say.
pub(crate) fn print(text: &str) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(stdout_error)
}

/// Writes one JSON object and a line break to standard output.
///
/// # Errors
/// As [`print`].
pub(crate) fn print_json(object: &impl Serialize) -> Result<(), CliError> {
    print(&(json(object) + "\n"))
}

/// An object as JSON. Ours have names as keys and nothing that fails, so there is always one.
pub(crate) fn json(object: &impl Serialize) -> String {
    serde_json::to_string(object).unwrap_or_default()
}

/// Writes lines to standard error, control characters escaped.
pub(crate) fn note(text: &str) {
    note_styled(&escape::lines(text));
}

/// Writes lines of our own making to standard error. That nobody may read them is no reason to stop.
pub(crate) fn note_styled(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// How text may look on a stream.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Style {
    /// Whether colours are shown.
    pub(crate) color: bool,
    /// Whether characters outside ASCII are shown.
    pub utf8: bool,
}

impl Style {
    /// What standard output can show.
    pub(crate) fn of_stdout() -> Self {
        Self::of(io::stdout().is_terminal())
    }

    /// What standard error can show.
    pub(crate) fn of_stderr() -> Self {
        Self::of(io::stderr().is_terminal())
    }

    fn of(is_terminal: bool) -> Self {
        Self { color: is_terminal && !env::no_color(), utf8: env::utf8_locale() }
    }

    /// `text` in a colour of [`color`], where there are colours.
    pub(crate) fn paint(self, color: &str, text: &str) -> String {
        if self.color { format!("\x1b[{color}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// Colours for [`Style::paint`].
pub(crate) mod color {
    /// For errors and refusals.
    pub(crate) const RED: &str = "1;31";
    /// For what went well.
    pub(crate) const GREEN: &str = "1;32";
    /// For what matters more.
    pub(crate) const BOLD: &str = "1";
}

fn stdout_error(error: io::Error) -> CliError {
    match error.kind() {
        io::ErrorKind::BrokenPipe => CliError::ClosedPipe,
        _ => CliError::Write { target: "standard output".into(), source: error },
    }
}
