//! `minfer run`: one answer, or a conversation.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, IsTerminal};

use minfer_engine::{
    CancelFlag, Conversation, Engine, Error, Event, GenerateOptions, Generation, ModelFile, Plan, StopReason,
};
use minfer_text::{TemplateError, TokenId};
use serde::Serialize;

use super::stream::Stream;
use super::{chat, graphs, read_stdin};
use crate::args::RunArgs;
use crate::error::CliError;
use crate::output::{self, Versioned};
use crate::session::{self, Session};
use crate::signal::Interruptible;

#[derive(Serialize)]
struct Answer<'a> {
    text: &'a str,
    prompt_tokens: usize,
    /// How many were generated.
    tokens: usize,
    ids: &'a [TokenId],
    stop: StopReason,
    seconds: Seconds,
    memory: Plan,
}

#[derive(Serialize)]
struct Seconds {
    load: f64,
    prefill: f64,
    decode: f64,
}

/// Answers a prompt; holds a conversation if there is none and someone at a terminal.
pub(super) fn run(args: &RunArgs) -> Result<(), CliError> {
    let converses = args.prompt.is_none() && !args.model.output.json && io::stdin().is_terminal();
    let file = session::open(&args.model)?;
    let generation = generation(&file, args)?;
    let templated = is_templated(&file, args, converses)?;
    let prompt = match &args.prompt {
        Some(prompt) => Some(prompt.clone()),
        None if converses => None,
        None => Some(piped_prompt()?),
    };
    let options = args.model.engine.options();
    let mut session = session::load(file, &args.model, &options)?;
    if let Some(path) = &args.dump_graph {
        graphs::dump(path, session.engine.model_file(), session.engine.plan(), &options)?;
    }
    if args.model.output.verbose {
        output::note(&format!("seed: {}", generation.sampling.seed.unwrap_or_default()));
    }
    let result = match prompt {
        Some(prompt) => answer(&mut session, &prompt, templated, &generation, args),
        None => chat::converse(&mut session.engine, &generation, args),
    };
    session.finish(&args.model)?;
    result
}

/// Whether the chat template is used.
fn is_templated(file: &ModelFile, args: &RunArgs, converses: bool) -> Result<bool, CliError> {
    let templated = !args.sampling.no_template && file.chat_template()?.is_some();
    let path = || file.path().display().to_string();
    if converses && !templated {
        return Err(CliError::NoConversation { path: path() });
    }
    if args.sampling.system.is_some() && !templated {
        return Err(CliError::NoTemplate { path: path() });
    }
    Ok(templated)
}

/// Standard input without the line break that `echo` adds, so that it says the same as an argument.
fn piped_prompt() -> Result<String, CliError> {
    let mut prompt = read_stdin()?;
    if prompt.ends_with('\n') {
        prompt.pop();
    }
    Ok(prompt)
}

/// What the engine is asked for: the command line before the file before the defaults.
fn generation(file: &ModelFile, args: &RunArgs) -> Result<GenerateOptions, CliError> {
    let asked = &args.sampling;
    let mut sampling = file.sampling()?;
    let set = |value: &mut f32, asked: Option<f32>| *value = asked.unwrap_or(*value);
    set(&mut sampling.temperature, asked.temp);
    set(&mut sampling.top_p, asked.top_p);
    set(&mut sampling.min_p, asked.min_p);
    set(&mut sampling.repeat_penalty, asked.repeat_penalty);
    sampling.top_k = asked.top_k.map_or(sampling.top_k, |k| k as usize);
    sampling.seed = Some(asked.seed.unwrap_or_else(random_seed));
    Ok(GenerateOptions {
        max_tokens: asked.max_tokens,
        sampling,
        stops: asked.stop.clone(),
        ignore_eos: asked.ignore_eos,
    })
}

/// The standard library seeds its hashers from the system's random numbers.
fn random_seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

fn answer(
    session: &mut Session,
    prompt: &str,
    templated: bool,
    options: &GenerateOptions,
    args: &RunArgs,
) -> Result<(), CliError> {
    let output = &args.model.output;
    let work = Interruptible::begin();
    let mut stream = Stream::new(work.flag(), !output.json, output.quiet);
    let system = args.sampling.system.clone().filter(|_| templated);
    let mut on_event = |event: Event<'_>| stream.on_event(event);
    let generation = generate(
        &mut session.engine,
        prompt,
        templated.then_some(system),
        options,
        work.flag(),
        &mut on_event,
    );
    let written = if generation.is_ok() { stream.finish() } else { stream.abandon() };
    let generation = generation?;
    written?;
    if output.verbose {
        show_speed(session, &generation);
    }
    if output.json {
        output::print_json(&Versioned::new(json(session, &generation)))?;
    }
    if generation.stop == StopReason::Cancelled { Err(CliError::Interrupted) } else { Ok(()) }
}

/// Generates from a prompt: the first turn of a conversation with this system prompt, or the plain continuation. A
/// template that isn't one counts as none, with a warning, unless a system prompt needs it.
fn generate(
    engine: &mut Engine,
    prompt: &str,
    conversation: Option<Option<String>>,
    options: &GenerateOptions,
    cancel: &CancelFlag,
    on_event: &mut dyn FnMut(Event<'_>),
) -> Result<Generation, Error> {
    if let Some(system) = conversation {
        let needs_template = system.is_some();
        match Conversation::new(system).turn(engine, prompt, options, cancel, on_event) {
            Err(error) if !needs_template && is_no_template(&error) => {
                output::note(&format!("warning: {error}, as is done now"));
            }
            turn => return Ok(turn?.generation),
        }
    }
    engine.generate(&engine.encode(prompt)?, options, cancel, on_event)
}

/// Whether the file's template can't be read, whatever the conversation.
fn is_no_template(error: &Error) -> bool {
    let Error::Template { source, .. } = error else { return false };
    matches!(source, TemplateError::Syntax { .. } | TemplateError::TooLong { .. })
}

fn json<'a>(session: &Session, generation: &'a Generation) -> Answer<'a> {
    Answer {
        text: &generation.text,
        prompt_tokens: generation.prompt_tokens,
        tokens: generation.ids.len(),
        ids: &generation.ids,
        stop: generation.stop,
        seconds: Seconds {
            load: session.load.as_secs_f64(),
            prefill: generation.prefill.as_secs_f64(),
            decode: generation.decode.as_secs_f64(),
        },
        memory: session.engine.memory_report(),
    }
}

fn show_speed(session: &Session, generation: &Generation) {
    let line = |what: &str, tokens: usize, time: std::time::Duration| {
        let seconds = time.as_secs_f64();
        let speed = if seconds > 0.0 { tokens as f64 / seconds } else { 0.0 };
        output::note(&format!("{what}: {tokens} tokens in {seconds:.3} s, {speed:.1} tokens/s"));
    };
    output::note(&format!("load: {:.3} s", session.load.as_secs_f64()));
    line("prefill", generation.prompt_tokens, generation.prefill);
    line("decode", generation.ids.len(), generation.decode);
}
