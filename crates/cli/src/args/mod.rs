//! The command line: one definition per option. Parsing does no more than parsing.

mod engine;
mod sampling;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{BoolishValueParser, OsStringValueParser, TypedValueParser};
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, ArgAction, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use minfer_text::TokenId;

pub(crate) use engine::{Device, EngineArgs, default_threads};
pub(crate) use sampling::SamplingArgs;

use crate::env;

/// Said below the options of a command.
const TWINS: &str =
    "Options about memory, device and output can be set by a variable: --gpu-layers by MINFER_GPU_LAYERS.";

/// The heading of the options that decide about memory and devices.
const ENGINE: &str = "Memory and device";
/// The heading of the options that decide what is shown.
const OUTPUT: &str = "Output";

/// Runs language models on this machine, and says where every byte goes.
#[derive(Debug, Parser)]
#[command(name = "minfer", version, subcommand_required = true, arg_required_else_help = false)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What minfer can do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Generate text, or hold a conversation
    Run(RunArgs),
    /// Show where every byte will go, without reading a weight
    Plan(PlanArgs),
    /// Measure the speed of prefill and decode
    Bench(BenchArgs),
    /// Score a text
    Perplexity(PerplexityArgs),
    /// Show the token ids of a text
    Tokenize(TokenizeArgs),
    /// Show the metadata and the tensors of a file
    Inspect(InspectArgs),
    /// Show backends, devices and their memory
    Devices(DevicesArgs),
}

/// What every command that takes a model has.
#[derive(Debug, Args)]
pub(crate) struct ModelArgs {
    /// Path of a GGUF file, hf:owner/repo[:file], pip:package==version, or an alias such as smollm2:135m (the default)
    #[arg(value_parser = no_empty())]
    pub(crate) model: Option<OsString>,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Write the memory report as JSON to FILE when the work ends
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub(crate) memory_report: Option<PathBuf>,
}

/// What is shown.
#[derive(Debug, Args)]
pub(crate) struct OutputArgs {
    /// Print one JSON object
    #[arg(long, help_heading = OUTPUT)]
    pub(crate) json: bool,
    /// No progress and no notes
    #[arg(short, long, help_heading = OUTPUT)]
    pub(crate) quiet: bool,
    /// Tell more: seed, timings, the plan and what came of it
    #[arg(short, long, help_heading = OUTPUT)]
    pub(crate) verbose: bool,
}

/// `minfer run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// What the model answers to; without it, standard input, or a conversation if that is a terminal
    pub(crate) prompt: Option<String>,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
    /// Write the compute graphs to FILE: for Graphviz if it ends in .dot, else as text
    #[arg(long, value_name = "FILE")]
    pub(crate) dump_graph: Option<PathBuf>,
}

/// `minfer plan`.
#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// Draw the plan to FILE
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// Write the compute graphs to FILE: for Graphviz if it ends in .dot, else as text
    #[arg(long, value_name = "FILE")]
    pub(crate) dump_graph: Option<PathBuf>,
}

/// `minfer bench`.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// Tokens of the prompt; 0 leaves prefill out
    #[arg(short, long, value_name = "N", default_value_t = 512)]
    pub(crate) prompt: u32,
    /// Tokens to generate; 0 leaves decode out
    #[arg(short = 'n', long, value_name = "N", default_value_t = 128)]
    pub(crate) generate: u32,
    /// Repetitions
    #[arg(short, long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) repetitions: u32,
    /// Tokens that are in the context already
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) depth: u32,
    /// Print the table in Markdown
    #[arg(long, conflicts_with = "json")]
    pub(crate) markdown: bool,
}

/// `minfer perplexity`.
#[derive(Debug, Args)]
pub(crate) struct PerplexityArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) text: ScoredText,
    /// Report the K likeliest tokens after each position
    #[arg(long, value_name = "K", default_value_t = 0)]
    pub(crate) top: usize,
}

/// What is scored: exactly one of the two.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct ScoredText {
    /// The text to score; - is standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// The token ids to score
    #[arg(long, value_name = "ID,ID,…", value_delimiter = ',')]
    pub(crate) tokens: Option<Vec<TokenId>>,
}

/// `minfer tokenize`.
#[derive(Debug, Args)]
pub(crate) struct TokenizeArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// The text; - is standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Add no BOS or EOS, and treat the spelling of special tokens as plain text
    #[arg(long)]
    pub(crate) no_special: bool,
}

/// `minfer inspect`.
#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
}

/// `minfer devices`.
#[derive(Debug, Args)]
pub(crate) struct DevicesArgs {
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

impl Cli {
    /// Parses a command line, the program's name first, and the environment's twins of its options.
    ///
    /// # Errors
    /// clap's own, `--help` and `--version` among them.
    pub(crate) fn parse_args(args: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let args: Vec<OsString> = args.into_iter().collect();
        let matches = definition().try_get_matches_from(&args).map_err(|error| with_source(error, &args))?;
        let mut cli = Self::from_arg_matches(&matches)?;
        if let (Some(model), Some((_, matches))) = (cli.command.model_mut(), matches.subcommand()) {
            model.engine.record_sources(matches);
        }
        Ok(cli)
    }
}

impl Command {
    fn model_mut(&mut self) -> Option<&mut ModelArgs> {
        match self {
            Self::Run(args) => Some(&mut args.model),
            Self::Plan(args) => Some(&mut args.model),
            Self::Bench(args) => Some(&mut args.model),
            Self::Perplexity(args) => Some(&mut args.model),
            Self::Tokenize(args) => Some(&mut args.model),
            Self::Inspect(args) => Some(&mut args.model),
            Self::Devices(_) => None,
        }
    }
}

/// The command line as clap sees it: the last of a repeated option wins, and options have their twins.
fn definition() -> clap::Command {
    let with_twins = |command: clap::Command| {
        command.args_override_self(true).after_help(TWINS).mut_args(|arg| with_numbers(with_twin(arg)))
    };
    Cli::command().mut_subcommands(with_twins)
}

/// An empty name is a variable that wasn't set, not a model.
fn no_empty() -> impl TypedValueParser<Value = OsString> {
    OsStringValueParser::new()
        .try_map(|name| if name.is_empty() { Err("the name is empty") } else { Ok(name) })
}

/// What looks like a number is an option's value even where it is negative: the value is at fault then, not the line.
fn with_numbers(arg: Arg) -> Arg {
    let takes_value = arg.get_action().takes_values() && !arg.is_positional();
    if takes_value { arg.allow_negative_numbers(true) } else { arg }
}

/// The option with its environment variable, if it is one that has one and the variable isn't empty.
fn with_twin(arg: Arg) -> Arg {
    if !matches!(arg.get_help_heading(), Some(ENGINE | OUTPUT)) {
        return arg;
    }
    let Some(twin) = arg.get_long().map(env::option_twin) else { return arg };
    let arg = match arg.get_action() {
        ArgAction::SetTrue => arg.value_parser(BoolishValueParser::new()),
        _ => arg,
    };
    if env::is_set(&twin) { arg.env(twin) } else { arg }
}

/// An error about the value of an option names the variable that it came from, if it did: clap names the option.
fn with_source(mut error: clap::Error, args: &[OsString]) -> clap::Error {
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else { return error };
    let flag = option.split([' ', '=']).next().unwrap_or_default().to_owned();
    let is_flag = |arg: &OsString| arg.to_string_lossy().split('=').next() == Some(&flag);
    let twin = flag.strip_prefix("--").map(env::option_twin).filter(|twin| env::is_set(twin));
    // A flag wins over its variable, so what was on the line is at fault.
    if let Some(twin) = twin.filter(|_| !args.iter().any(is_flag)) {
        error.insert(ContextKind::InvalidArg, ContextValue::String(twin));
    }
    error
}

#[cfg(test)]
mod tests;
