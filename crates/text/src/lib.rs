//! Between people's text and the model's tokens.
//!
//! - [`Tokenizer`]: text to ids and ids to bytes, from the vocabulary of a GGUF file.
//! - [`Detokenizer`]: the bytes of tokens to text while they arrive, up to a stop string.
//! - [`ChatTemplate`]: a conversation to the text that a model was trained on.
//! - [`Sampler`]: logits to the next token, by [`SamplingParams`].

mod detokenizer;
mod sampler;
mod template;
mod tokenizer;

pub use detokenizer::{Detokenizer, StreamState};
pub use sampler::{Error as SamplerError, Sampler, SamplingParams};
pub use template::{ChatTemplate, Error as TemplateError, Message, RenderOptions};
pub use tokenizer::{
    Error as TokenizerError, SpecialIds, Specials, TokenId, TokenKind, Tokenizer, TokenizerModel, VocabSource,
};
