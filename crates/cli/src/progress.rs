//! Progress on standard error: bars on a terminal only, notes unless they are unwelcome.

use std::io::{self, IsTerminal};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use minfer_fetch::Progress;

use crate::escape;
use crate::output;

const TRANSFER: &str = "{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta}";
const UNKNOWN: &str = "{spinner} {msg} {elapsed}";
const STEPS: &str = "{msg} [{bar:30}] {pos}/{len} {eta}";

/// One bar, which may show one piece of work after the other.
pub(crate) struct Bar {
    quiet: bool,
    bar: ProgressBar,
}

impl Bar {
    /// With `quiet`, shows nothing at all.
    pub(crate) fn new(quiet: bool) -> Self {
        Self { quiet, bar: ProgressBar::hidden() }
    }

    /// Shows that `done` of `total` steps of `what` are done. The last step clears the bar.
    pub(crate) fn step(&mut self, what: &str, done: u64, total: u64) {
        if done >= total {
            return self.clear();
        }
        if self.bar.length() != Some(total) || self.bar.is_finished() {
            self.show(what, STEPS, ProgressBar::new(total));
        }
        self.bar.set_position(done);
    }

    /// Takes the bar from the terminal.
    pub(crate) fn clear(&mut self) {
        self.bar.finish_and_clear();
    }

    fn show(&mut self, what: &str, template: &str, bar: ProgressBar) {
        if self.quiet || !io::stderr().is_terminal() {
            return;
        }
        // The templates are constants; with a wrong one the default style is good enough.
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let style = style.progress_chars("=> ");
        bar.set_draw_target(ProgressDrawTarget::stderr());
        self.bar = bar.with_style(style).with_message(escape::line(what).into_owned());
        self.bar.enable_steady_tick(Duration::from_millis(200));
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Progress for Bar {
    fn begin(&mut self, what: &str, total: Option<u64>) {
        match total {
            Some(total) => self.show(what, TRANSFER, ProgressBar::new(total)),
            None => self.show(what, UNKNOWN, ProgressBar::new_spinner()),
        }
    }

    fn advance(&mut self, done: u64) {
        self.bar.set_position(done);
    }

    fn end(&mut self) {
        self.clear();
    }

    fn note(&mut self, text: &str) {
        if !self.quiet {
            self.bar.suspend(|| output::note(text));
        }
    }
}
