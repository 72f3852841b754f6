//! Text as it is generated.

use std::io::{self, IsTerminal};

use minfer_engine::{CancelFlag, Event};

use crate::error::CliError;
use crate::progress::Bar;
use crate::{escape, output};

/// Writes text to standard output as it comes, and shows a long prefill.
pub(super) struct Stream<'a> {
    cancel: &'a CancelFlag,
    bar: Bar,
    /// Whether text is shown at all.
    shows: bool,
    /// A terminal obeys control characters: there they are escaped. A file gets the text as it is.
    escapes: bool,
    error: Option<CliError>,
    /// Whether there is text that a line break must end.
    begun: bool,
}

impl<'a> Stream<'a> {
    /// With `shows` false, no text is written. A write that fails sets `cancel`.
    pub(super) fn new(cancel: &'a CancelFlag, shows: bool, quiet: bool) -> Self {
        Self {
            cancel,
            bar: Bar::new(quiet),
            shows,
            escapes: io::stdout().is_terminal(),
            error: None,
            begun: false,
        }
    }

    /// Takes what the engine tells.
    pub(super) fn on_event(&mut self, event: Event<'_>) {
        match event {
            Event::Prefill { done, total } => self.bar.step("reading the prompt", done as u64, total as u64),
            Event::Text(text) if self.escapes => self.write(&escape::lines(text)),
            Event::Text(text) => self.write(text),
        }
    }

    /// Ends the text with a line break.
    ///
    /// # Errors
    /// What kept the text from being written.
    pub(super) fn finish(mut self) -> Result<(), CliError> {
        self.bar.clear();
        self.write("\n");
        self.error.map_or(Ok(()), Err)
    }

    /// Ends what text there is, so that an error begins on a line of its own.
    ///
    /// # Errors
    /// As [`finish`](Self::finish).
    pub(super) fn abandon(self) -> Result<(), CliError> {
        if self.begun { self.finish() } else { self.error.map_or(Ok(()), Err) }
    }

    fn write(&mut self, text: &str) {
        if !self.shows || self.error.is_some() {
            return;
        }
        self.begun = true;
        if let Err(error) = output::print(text) {
            self.error = Some(error);
            self.cancel.cancel();
        }
    }
}
