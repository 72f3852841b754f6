//! Why a template gave no text.

use std::error::Error as _;

use minfer_gguf::quote;
use minijinja::ErrorKind;

/// Why a conversation couldn't be rendered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// `tokenizer.chat_template` isn't a string.
    #[error(transparent)]
    Metadata(#[from] minfer_gguf::Error),
    /// The template is longer than any real one.
    #[error("tokenizer.chat_template has {len} bytes without its comments, expected at most {most}")]
    TooLong {
        /// Its length in bytes, without comments.
        len: usize,
        /// The greatest length in bytes.
        most: usize,
    },
    /// The template isn't valid.
    #[error("tokenizer.chat_template is not a valid template (line {line}): {message}")]
    Syntax {
        /// Where.
        line: usize,
        /// What is wrong, escaped.
        message: String,
    },
    /// The template failed on this conversation, or refused it.
    #[error("tokenizer.chat_template doesn't take this conversation (line {line}): {message}")]
    Render {
        /// Where.
        line: usize,
        /// What went wrong, escaped.
        message: String,
    },
    /// The template used up its budget.
    #[error("tokenizer.chat_template needs more time or memory than a conversation of this size should")]
    TooMuchWork,
    /// No thread for the rendering.
    #[error("no thread to render tokenizer.chat_template: {0}")]
    Thread(#[from] std::io::Error),
    /// The template engine failed.
    #[error("tokenizer.chat_template made the template engine fail")]
    Crashed,
}

impl Error {
    pub(super) fn from_compile(error: &minijinja::Error) -> Self {
        Self::Syntax { line: error.line().unwrap_or(1), message: message(error) }
    }

    pub(super) fn from_render(error: &minijinja::Error) -> Self {
        if error.kind() == ErrorKind::OutOfFuel {
            return Self::TooMuchWork;
        }
        Self::Render { line: error.line().unwrap_or(1), message: message(error) }
    }
}

/// The kind and detail of the innermost error.
fn message(error: &minijinja::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source().and_then(|source| source.downcast_ref()) {
        innermost = source;
    }
    match innermost.detail() {
        Some(detail) => format!("{}: {}", innermost.kind(), quote(detail)),
        None => innermost.kind().to_string(),
    }
}
