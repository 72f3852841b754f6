//! What is wrong with a vocabulary, or can't be encoded with it.

use minfer_gguf::quote;

use super::TokenId;
use super::split::PreTokenizer;

/// Why a tokenizer couldn't be built from a file, or a text not be encoded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A value of the metadata has the wrong type.
    #[error(transparent)]
    Metadata(#[from] minfer_gguf::Error),
    /// A key that this kind of tokenizer needs isn't there.
    #[error("{key} is missing: {need}")]
    Missing {
        /// The key.
        key: &'static str,
        /// What needs it.
        need: &'static str,
    },
    /// A list has no entries.
    #[error("{key} is an empty list: a vocabulary has at least one token")]
    Empty {
        /// The key.
        key: &'static str,
    },
    /// `tokenizer.ggml.model` names an algorithm that isn't supported.
    #[error(
        "tokenizer.ggml.model is {}, which is not supported; known are \"gpt2\" and \"llama\"",
        quote(found)
    )]
    UnknownModel {
        /// The name in the file.
        found: String,
    },
    /// `tokenizer.ggml.pre` names a rule that isn't known.
    #[error(
        "tokenizer.ggml.pre is {}, which is not known, and a wrong rule would give wrong tokens; known are {}",
        quote(found),
        PreTokenizer::known_names()
    )]
    UnknownPre {
        /// The name in the file.
        found: String,
    },
    /// Two lists that go by token differ in length.
    #[error("{key} has {found} entries, expected {expected}, one for each of tokenizer.ggml.tokens")]
    Length {
        /// The key.
        key: &'static str,
        /// The length in the file.
        found: usize,
        /// The number of tokens.
        expected: usize,
    },
    /// A score that can't be ordered.
    #[error("tokenizer.ggml.scores[{index}] is not a number")]
    BadScore {
        /// The token.
        index: usize,
    },
    /// A merge that isn't two pieces with a space between.
    #[error(
        "tokenizer.ggml.merges[{index}] is {}, expected a merge of two pieces with a space between",
        quote(text)
    )]
    BadMerge {
        /// Its place in the list.
        index: usize,
        /// The merge.
        text: String,
    },
    /// A merge of or into something that is no token.
    #[error(
        "tokenizer.ggml.merges[{index}] is {}: a piece of this merge or its result is not in tokenizer.ggml.tokens",
        quote(text)
    )]
    MergeWithoutToken {
        /// Its place in the list.
        index: usize,
        /// The merge.
        text: String,
    },
    /// A special id that is no token.
    #[error("{key} is {id}, but the vocabulary has {n_vocab} tokens (ids from 0 to {})", n_vocab - 1)]
    IdBeyondVocabulary {
        /// The key.
        key: &'static str,
        /// The id in the file.
        id: i128,
        /// The size of the vocabulary.
        n_vocab: usize,
    },
    /// A token is to be added that isn't named.
    #[error("{flag} is true, but there is no {key}")]
    FlagWithoutId {
        /// The flag.
        flag: &'static str,
        /// The key of the id it needs.
        key: &'static str,
    },
    /// A special token longer than any real one.
    #[error("tokenizer.ggml.tokens[{id}] is a special token of {len} bytes, expected at most {most}")]
    SpecialTooLong {
        /// The token.
        id: TokenId,
        /// Its length in bytes.
        len: usize,
        /// The greatest length in bytes.
        most: usize,
    },
    /// More tokens or bytes than ids and offsets can count.
    #[error("tokenizer.ggml.tokens is too large: at most 2^31 tokens and 4 GiB of text")]
    VocabularyTooLarge,
    /// A text of 4 GiB or more.
    #[error("the text has {len} bytes, expected less than 4 GiB")]
    TextTooLong {
        /// Its length in bytes.
        len: usize,
    },
    /// The vocabulary can't spell a text.
    #[error("the vocabulary has no token for the byte 0x{byte:02X}, and no unknown token")]
    NoByteToken {
        /// The byte.
        byte: u8,
    },
}
