//! What can go wrong, and what kind of trouble it is.

use std::path::PathBuf;

use minfer_graph::GraphError;
use minfer_models::ModelError;
use thiserror::Error;

/// What kind of trouble an [`enum@Error`] is: the command line's exit code follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The work failed: a prompt longer than the context, a lost device.
    Failed,
    /// The request itself makes no sense.
    Usage,
    /// The memory policy refuses it.
    Refused,
    /// The model file is missing, damaged or unsupported.
    Model,
}

/// A failure of loading or of generating.
#[derive(Debug, Error)]
pub enum Error {
    /// The file isn't a valid GGUF file.
    #[error(transparent)]
    Gguf(#[from] minfer_gguf::Error),
    /// The file is valid, but not a model that we can run.
    #[error("{}: {source}", path.display())]
    Model {
        /// The model file.
        path: PathBuf,
        /// What is wrong with it.
        source: ModelError,
    },
    /// The file's vocabulary can't be used.
    #[error("{}: {source}", path.display())]
    Tokenizer {
        /// The model file.
        path: PathBuf,
        /// What is wrong with it.
        source: minfer_text::TokenizerError,
    },
    /// A text that the vocabulary can't spell.
    #[error(transparent)]
    Encode(minfer_text::TokenizerError),
    /// The file's sampling defaults.
    #[error("{}: {source}", path.display())]
    SamplingDefaults {
        /// The model file.
        path: PathBuf,
        /// What is wrong with them.
        source: minfer_text::SamplerError,
    },
    /// The chat template can't be read, or can't render these messages.
    #[error("{}: the chat template failed: {source}; --no-template completes the plain prompt", path.display())]
    Template {
        /// The model file.
        path: PathBuf,
        /// The template engine's message.
        source: minfer_text::TemplateError,
    },
    /// The file has no chat template.
    #[error("{} has no chat template; --no-template completes the plain prompt", path.display())]
    NoTemplate {
        /// The model file.
        path: PathBuf,
    },
    /// A sampling parameter is out of range.
    #[error(transparent)]
    Sampling(#[from] minfer_text::SamplerError),
    /// The logits aren't finite: a weight is damaged.
    #[error(
        "{}: the logits after token {position} are not finite: a weight of the file is not a number or infinite; \
         fetch the file again", path.display()
    )]
    NotFinite {
        /// The model file.
        path: PathBuf,
        /// Position of the token in the context.
        position: usize,
    },
    /// A tensor lies where its file has nothing, which only a file that changed since it was opened does.
    #[error("{}: tensor {name} can't be read; the file changed while it was loaded", path.display())]
    Weight {
        /// The model file.
        path: PathBuf,
        /// The tensor.
        name: String,
    },
    /// A token that the model has no embedding for.
    #[error("token {id} is beyond the model's {n_vocab} tokens")]
    Token {
        /// The token.
        id: u32,
        /// Tokens of the model.
        n_vocab: usize,
    },
    /// Nothing to continue.
    #[error("the prompt is empty and the model has no token for the beginning of a text; give some text")]
    EmptyPrompt,
    /// A prompt is never cut silently.
    #[error("the prompt has {n_prompt} tokens, the context holds {n_ctx}; shorten it or raise --ctx")]
    PromptTooLong {
        /// Tokens of the prompt.
        n_prompt: usize,
        /// Positions of the context.
        n_ctx: usize,
    },
    /// The memory policy refuses the plan.
    #[error("{0}")]
    Refused(String),
    /// A fault between model and engine.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// The device failed.
    #[error(transparent)]
    Run(#[from] minfer_graph::Error),
}

impl Error {
    /// What kind of trouble it is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            // The model is fine, with another type of the KV cache.
            Error::Model { source: ModelError::KvHead { .. }, .. } => ErrorKind::Usage,
            Error::Gguf(_)
            | Error::Model { .. }
            | Error::Tokenizer { .. }
            | Error::SamplingDefaults { .. }
            | Error::Weight { .. }
            | Error::NotFinite { .. } => ErrorKind::Model,
            Error::Refused(_) => ErrorKind::Refused,
            Error::Sampling(_) => ErrorKind::Usage,
            Error::Encode(_)
            | Error::Template { .. }
            | Error::NoTemplate { .. }
            | Error::Token { .. }
            | Error::EmptyPrompt
            | Error::PromptTooLong { .. }
            | Error::Graph(_)
            | Error::Run(_) => ErrorKind::Failed,
        }
    }
}
