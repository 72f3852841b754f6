//! The conversation of `minfer run` on a terminal.

use minfer_engine::{Conversation, Engine, Error, GenerateOptions, StopReason};
use rustyline::config::Behavior;
use rustyline::error::ReadlineError;
use rustyline::{Config, DefaultEditor};

use super::stream::Stream;
use crate::args::RunArgs;
use crate::error::CliError;
use crate::signal::Interruptible;
use crate::{env, output};

const PROMPT: &str = ">>> ";
const CONTINUED: &str = "... ";
/// Name of the history in the cache folder.
const HISTORY: &str = "history";

const HELP: &str = "\
/clear          forget the conversation; the system prompt stays
/system TEXT    tell the model something beforehand; without TEXT, nothing
/help           this
/bye            leave, as Ctrl-D does
\"\"\"             begin and end a text of several lines; a \\ at the end of a line continues it
Ctrl-C ends an answer.";

/// Asks and answers until the user leaves. The model must have a chat template.
pub(super) fn converse(
    engine: &mut Engine,
    options: &GenerateOptions,
    args: &RunArgs,
) -> Result<(), CliError> {
    if !args.model.output.quiet {
        output::note("/help lists the commands, /bye leaves");
    }
    let mut reader = Reader::new()?;
    let mut conversation = Conversation::new(args.sampling.system.clone());
    while let Some(text) = reader.read()? {
        match Input::parse(&text) {
            Input::Nothing => {}
            Input::Help => output::note(HELP),
            Input::Clear => conversation.clear(),
            Input::System(text) => conversation.set_system(text.map(Into::into)),
            Input::Bye => break,
            Input::Unknown(command) => output::note(&format!("no command {command}; /help lists them")),
            Input::Message(message) => turn(&mut conversation, engine, message, options, args)?,
        }
    }
    reader.save();
    Ok(())
}

/// One question and its answer. One that doesn't fit is told, and the conversation goes on.
fn turn(
    conversation: &mut Conversation,
    engine: &mut Engine,
    message: &str,
    options: &GenerateOptions,
    args: &RunArgs,
) -> Result<(), CliError> {
    let quiet = args.model.output.quiet;
    let work = Interruptible::begin();
    let mut stream = Stream::new(work.flag(), true, quiet);
    let turn = conversation.turn(engine, message, options, work.flag(), &mut |event| stream.on_event(event));
    let turn = match turn {
        Err(error @ (Error::PromptTooLong { .. } | Error::Template { .. })) => {
            output::note(&format!("error: {error}"));
            return Ok(());
        }
        turn => turn?,
    };
    stream.finish()?;
    if quiet {
        return Ok(());
    }
    if turn.dropped_turns > 0 {
        output::note(&format!(
            "note: the context is full: the oldest {} turns were dropped",
            turn.dropped_turns
        ));
    }
    match turn.generation.stop {
        StopReason::Context => output::note("note: the context is full: the answer ends here"),
        StopReason::Cancelled => output::note("note: interrupted; /bye leaves"),
        _ => {}
    }
    Ok(())
}

/// What a user may say.
#[derive(Debug, PartialEq, Eq)]
enum Input<'a> {
    Nothing,
    Help,
    Clear,
    System(Option<&'a str>),
    Bye,
    Unknown(&'a str),
    Message(&'a str),
}

impl<'a> Input<'a> {
    fn parse(text: &'a str) -> Self {
        let text = text.trim();
        if text.is_empty() {
            return Self::Nothing;
        }
        if !text.starts_with('/') || text.contains('\n') {
            return Self::Message(text);
        }
        let (command, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        match command {
            "/help" | "/?" => Self::Help,
            "/clear" => Self::Clear,
            "/system" => Self::System(Some(rest.trim()).filter(|rest| !rest.is_empty())),
            "/bye" | "/exit" | "/quit" => Self::Bye,
            _ => Self::Unknown(command),
        }
    }
}

/// Lines that make one message: between two `"""`, or continued by a `\` at their end.
#[derive(Default)]
struct Lines {
    text: String,
    fenced: bool,
}

impl Lines {
    /// Takes a line; `true` if the message is complete.
    fn push(&mut self, line: &str) -> bool {
        const FENCE: &str = "\"\"\"";
        let opens = !self.fenced && self.text.is_empty() && line.trim_start().starts_with(FENCE);
        let line = if opens { line.trim_start().trim_start_matches(FENCE) } else { line };
        self.fenced |= opens;
        if self.fenced {
            let end = line.find(FENCE);
            self.text.push_str(&line[..end.unwrap_or(line.len())]);
            if end.is_none() {
                self.text.push('\n');
            }
            return end.is_some();
        }
        let continued = line.strip_suffix('\\');
        self.text.push_str(continued.unwrap_or(line));
        if continued.is_some() {
            self.text.push('\n');
        }
        continued.is_none()
    }
}

/// The line editor with its history.
struct Reader {
    editor: DefaultEditor,
}

impl Reader {
    fn new() -> Result<Self, CliError> {
        let config = Config::builder().behavior(Behavior::PreferTerm).auto_add_history(true).build();
        let mut editor = DefaultEditor::with_config(config).map_err(terminal)?;
        if let Some(dir) = env::cache_dir() {
            // There is none the first time; one that can't be read is no reason not to talk.
            let _ = editor.load_history(&dir.join(HISTORY));
        }
        Ok(Self { editor })
    }

    /// The next message; `None` when the user leaves.
    fn read(&mut self) -> Result<Option<String>, CliError> {
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
    fn save(&mut self) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn message(lines: &[&str]) -> Option<String> {
        let mut all = Lines::default();
        let (last, first) = lines.split_last()?;
        for line in first {
            assert!(!all.push(line), "{line} ends the message");
        }
        all.push(last).then_some(all.text)
    }

    #[test]
    fn a_line_is_a_message() {
        assert_eq!(message(&["Why?"]).as_deref(), Some("Why?"));
        assert_eq!(message(&["say \"\"\"x\"\"\""]).as_deref(), Some("say \"\"\"x\"\"\""));
    }

    #[test]
    fn a_backslash_continues_and_quotes_enclose() {
        assert_eq!(message(&["a\\", "b"]).as_deref(), Some("a\nb"));
        assert_eq!(message(&["\"\"\"a", "  b\\", "\"\"\""]).as_deref(), Some("a\n  b\\\n"));
        assert_eq!(message(&["\"\"\"a\"\"\""]).as_deref(), Some("a"));
        assert_eq!(message(&["\"\"\"", "a"]), None);
    }

    #[test]
    fn a_slash_begins_a_command() {
        assert_eq!(Input::parse("  "), Input::Nothing);
        assert_eq!(Input::parse("/system  be brief "), Input::System(Some("be brief")));
        assert_eq!(Input::parse("/system"), Input::System(None));
        assert_eq!(Input::parse("/bye"), Input::Bye);
        assert_eq!(Input::parse("/frobnicate x"), Input::Unknown("/frobnicate"));
        assert_eq!(Input::parse("a /bye"), Input::Message("a /bye"));
        assert_eq!(Input::parse("/*\n*/"), Input::Message("/*\n*/"));
    }
}
