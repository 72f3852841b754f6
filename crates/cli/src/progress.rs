//! A progress bar for transfers, on a terminal only.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use minfer_fetch::Progress;
use std::io::{self, IsTerminal};
use std::time::Duration;

/// Shows transfers on standard error: as a bar on a terminal, else only the notes.
pub struct Bar {
    quiet: bool,
    bar: ProgressBar,
}

impl Bar {
    /// With `quiet`, shows nothing at all.
    pub fn new(quiet: bool) -> Bar {
        Bar { quiet, bar: ProgressBar::hidden() }
    }
}

impl Progress for Bar {
    fn begin(&mut self, what: &str, total: Option<u64>) {
        if self.quiet || !io::stderr().is_terminal() {
            return;
        }
        let (bar, template) = match total {
            Some(total) => {
                (ProgressBar::new(total), "{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta}")
            }
            None => (ProgressBar::new_spinner(), "{spinner} {msg} {elapsed}"),
        };
        // The templates are constants; with a wrong one the default style is good enough.
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_draw_target(ProgressDrawTarget::stderr());
        self.bar = bar.with_style(style).with_message(what.to_owned());
        self.bar.enable_steady_tick(Duration::from_millis(200));
    }

    fn advance(&mut self, done: u64) {
        self.bar.set_position(done);
    }

    fn end(&mut self) {
        self.bar.finish_and_clear();
    }

    fn note(&mut self, text: &str) {
        if !self.quiet {
            self.bar.suspend(|| eprintln!("{text}"));
        }
    }
}
