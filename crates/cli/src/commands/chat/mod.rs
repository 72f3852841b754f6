//! The conversation of `minfer run` on a terminal.

mod input;
mod reader;

use input::Input;
use minfer_engine::{Conversation, Engine, Error, GenerateOptions, StopReason};
use reader::Reader;

use super::stream::Stream;
use crate::args::RunArgs;
use crate::error::CliError;
use crate::output;
use crate::signal::Interruptible;

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
        let oldest = match turn.dropped_turns {
            1 => "turn was".to_owned(),
            n => format!("{n} turns were"),
        };
        output::note(&format!("note: the context is full: the oldest {oldest} dropped"));
    }
    match turn.generation.stop {
        StopReason::Context => output::note("note: the context is full: the answer ends here"),
        StopReason::Cancelled => output::note("note: interrupted; /bye leaves"),
        _ => {}
    }
    Ok(())
}
