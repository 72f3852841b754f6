//! Messages from a terminal, with a history that outlives the conversation.

use rustyline::config::Behavior;
use rustyline::error::ReadlineError;
use rustyline::{Config, DefaultEditor};

use super::input::Lines;
use crate::error::CliError;
use crate::{env, output};

const PROMPT: &str = ">>> ";
const CONTINUED: &str = "... ";
/// Name of the history in the cache folder.
const HISTORY: &str = "history";

/// The line editor with its history.
pub(super) struct Reader {
    editor: DefaultEditor,
}

impl Reader {
    pub(super) fn new() -> Result<Self, CliError> {
        let config = Config::builder().behavior(Behavior::PreferTerm).auto_add_history(true).build();
        let mut editor = DefaultEditor::with_config(config).map_err(terminal)?;
        if let Some(dir) = env::cache_dir() {
            // There is none the first time; one that can't be read is no reason not to talk.
            let _ = editor.load_history(&dir.join(HISTORY));
        }
        Ok(Self { editor })
    }

    /// The next message; `None` when the user leaves.
    pub(super) fn read(&mut self) -> Result<Option<String>, CliError> {
        let mut lines = Lines::default();
        loop {
            let prompt = if lines.text.is_empty() { PROMPT } else { CONTINUED };
            match self.editor.readline(prompt) {
                Ok(line) if lines.push(&line) => return Ok(Some(lines.text)),
                Ok(_) => {}
                Err(ReadlineError::Interrupted) => {
                    lines = Lines::default();
                    output::note("/bye or Ctrl-D leaves");
                }
                Err(ReadlineError::Eof) => return Ok(None),
                Err(error) => return Err(terminal(error)),
            }
        }
    }

    /// Keeps the history for the next conversation, if there is a place for it.
    pub(super) fn save(&mut self) {
        if let Some(dir) = env::cache_dir() {
            let _ = std::fs::create_dir_all(&dir);
            let _ = self.editor.save_history(&dir.join(HISTORY));
        }
    }
}

fn terminal(error: ReadlineError) -> CliError {
    match error {
        ReadlineError::Io(source) => CliError::Terminal(source.to_string()),
        other => CliError::Terminal(other.to_string()),
    }
}
