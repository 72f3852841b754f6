//! What ends the program early, and its exit code.

use std::io;
use std::path::{Path, PathBuf};

use minfer_engine::{Alternative, ErrorKind, Plan};
use minfer_fetch::FetchError;
use thiserror::Error;

/// Exit code after a failure while running.
pub(crate) const FAILED: u8 = 1;
/// Exit code after a command line, or a variable, that doesn't parse.
pub(crate) const USAGE: u8 = 2;
/// Exit code of a refusal by the memory policy.
pub(crate) const REFUSED: u8 = 3;
/// Exit code for a model file that is missing, damaged or unsupported.
pub(crate) const MODEL: u8 = 4;
/// Exit code after Ctrl-C.
pub(crate) const INTERRUPTED: u8 = 130;

/// What ends the program early.
#[derive(Debug, Error)]
pub(crate) enum CliError {
    /// The engine's own.
    #[error(transparent)]
    Engine(#[from] minfer_engine::Error),
    /// The model could not be had.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// The file isn't a valid GGUF file.
    #[error(transparent)]
    Gguf(#[from] minfer_gguf::Error),
    /// A file, or standard input, can't be read.
    #[error("cannot read {what}: {source}")]
    Read {
        /// The file, or the stream in words.
        what: String,
        /// The system's error.
        source: io::Error,
    },
    /// A file, or standard output, can't be written.
    #[error("cannot write {target}: {source}")]
    Write {
        /// The file, or the stream in words.
        target: String,
        /// The system's error.
        source: io::Error,
    },
    /// Output would replace a model.
    #[error("{path} is a GGUF file and is not overwritten; name another file for the output")]
    OverwritesModel {
        /// The file.
        path: String,
    },
    /// A text isn't UTF-8.
    #[error("{what} is not UTF-8 text: byte {offset} begins no character")]
    NotText {
        /// The file, or the stream in words.
        what: String,
        /// Where the first offending byte is.
        offset: usize,
    },
    /// There is no folder to keep models in.
    #[error(
        "there is no folder for fetched models: set {} or HOME, or give the path of a GGUF file",
        crate::env::CACHE
    )]
    NoCache,
    /// A device that isn't there.
    #[error("{source_name}: there is no device {wanted}; minfer devices lists those that there are")]
    NoDevice {
        /// The flag or the variable that asks for it.
        source_name: String,
        /// The device by its spelling.
        wanted: String,
    },
    /// Kernels that aren't there, or that this processor can't run.
    #[error("{}: expected {available}, found {wanted:?}", crate::env::CPU_LEVEL)]
    NoCpuLevel {
        /// The name that was given.
        wanted: String,
        /// The names of those that it can run.
        available: String,
    },
    /// A system prompt without a template to put it into.
    #[error("--system: {path} has no chat template to put it into")]
    NoTemplate {
        /// The model file.
        path: String,
    },
    /// A conversation without a template.
    #[error(
        "{path}: no conversation without a chat template; give a prompt, or pipe one into standard input"
    )]
    NoConversation {
        /// The model file.
        path: String,
    },
    /// A conversation needs a terminal that isn't there, or failed.
    #[error("the terminal failed: {0}")]
    Terminal(String),
    /// The memory policy refuses the plan.
    #[error("{message}{}", tries(alternatives))]
    Refused {
        /// What doesn't fit where.
        message: String,
        /// Requests each of which alone would do.
        alternatives: Vec<Alternative>,
    },
    /// A prompt where a model is expected.
    #[error(
        "{text:?} is no model; to prompt the default one: minfer run {} {text:?}",
        minfer_fetch::DEFAULT_ALIAS
    )]
    PromptForModel {
        /// What was given as the model.
        text: String,
    },
    /// A text without a token where one is needed.
    #[error("{what} has no tokens: nothing to score")]
    NoTokens {
        /// The file, or the option.
        what: String,
    },
    /// A benchmark of no tokens.
    #[error("-p 0 and -n 0 leave nothing to measure")]
    NothingToMeasure,
    /// Whoever read standard output has gone.
    #[error("standard output was closed")]
    ClosedPipe,
    /// Ctrl-C.
    #[error("interrupted")]
    Interrupted,
}

impl CliError {
    /// The exit code of `minfer`, as its users' scripts know it.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Engine(error) => match error.kind() {
                ErrorKind::Failed => FAILED,
                ErrorKind::Usage => USAGE,
                ErrorKind::Refused => REFUSED,
                ErrorKind::Model => MODEL,
            },
            Self::Fetch(FetchError::Reference { .. }) | Self::NoCpuLevel { .. } | Self::NothingToMeasure => {
                USAGE
            }
            Self::Fetch(FetchError::UnknownAlias { .. }) | Self::Gguf(_) | Self::PromptForModel { .. } => {
                MODEL
            }
            Self::Refused { .. } => REFUSED,
            Self::ClosedPipe => 0,
            Self::Interrupted => INTERRUPTED,
            Self::Fetch(_)
            | Self::Read { .. }
            | Self::Write { .. }
            | Self::OverwritesModel { .. }
            | Self::NotText { .. }
            | Self::NoCache
            | Self::NoDevice { .. }
            | Self::NoTemplate { .. }
            | Self::NoConversation { .. }
            | Self::Terminal(_)
            | Self::NoTokens { .. } => FAILED,
        }
    }

    /// The refusal of a plan, if it is refused.
    pub(crate) fn refusal(plan: &Plan) -> Option<Self> {
        let message = plan.refusal.as_ref()?.message.clone();
        Some(Self::Refused { message, alternatives: plan.alternatives.clone() })
    }

    /// Whether there is nothing to say: the user knows.
    pub(crate) fn is_quiet(&self) -> bool {
        matches!(self, Self::ClosedPipe | Self::Interrupted)
    }

    /// For `map_err`: a file that can't be written.
    pub(crate) fn write(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let target = PathBuf::from(path).display().to_string();
        |source| Self::Write { target, source }
    }
}

fn tries(alternatives: &[Alternative]) -> String {
    alternatives.iter().map(|other| format!("\n  try {}", other.argv.join(" "))).collect()
}
