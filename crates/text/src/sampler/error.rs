//! Why a sampler couldn't be made, or couldn't draw.

/// A parameter out of range, or logits that can't be sampled.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A parameter out of its range.
    #[error("{name} is {found}, expected {expected}")]
    OutOfRange {
        /// The parameter.
        name: &'static str,
        /// Its value.
        found: f32,
        /// Its range.
        expected: &'static str,
    },
    /// A default in the file that isn't of its type.
    #[error("{0}")]
    Metadata(String),
    /// A vocabulary without tokens.
    #[error("the vocabulary is empty: there is nothing to sample from")]
    NoLogits,
    /// Logits of another vocabulary.
    #[error("got {found} logits, expected {expected}, one a token")]
    WrongLength {
        /// How many came.
        found: usize,
        /// How many tokens there are.
        expected: usize,
    },
    /// A NaN or an infinity among the logits.
    #[error("logit {index} is {logit}, expected a finite number: the weights may be damaged")]
    NotFinite {
        /// The token.
        index: usize,
        /// Its logit.
        logit: f32,
    },
}
