//! The plain data that a tokenizer is built from.

use super::vocab::TokenKind;
use super::{Error, TokenId};

/// The algorithm that `tokenizer.ggml.model` names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TokenizerModel {
    /// `gpt2`: byte-level byte-pair encoding.
    #[default]
    Bpe,
    /// `llama`: SentencePiece BPE by scores, with byte fallback.
    Spm,
}

/// A vocabulary as a file describes it: what `Tokenizer::new` checks and indexes.
///
/// Texts are borrowed from the file. An absent list or flag takes the default of its model.
#[derive(Debug, Clone, Default)]
pub struct VocabSource<'a> {
    /// The algorithm; byte-level BPE by default.
    pub model: TokenizerModel,
    /// The name of the pre-tokenizer (BPE only).
    pub pre: Option<&'a str>,
    /// The text of each token, by id.
    pub tokens: Vec<&'a str>,
    /// The merge score of each token (SentencePiece only).
    pub scores: Option<Vec<f32>>,
    /// The kind of each token; all normal if absent.
    pub kinds: Option<Vec<TokenKind>>,
    /// The merges, best first, each two pieces with a space between (BPE only).
    pub merges: Option<Vec<&'a str>>,
    /// The special ids.
    pub ids: SpecialIds,
    /// Whether a text gets the BOS token in front.
    pub add_bos: Option<bool>,
    /// Whether a text gets the EOS token at its end.
    pub add_eos: Option<bool>,
    /// Whether a text gets a space in front (SentencePiece only).
    pub add_space_prefix: Option<bool>,
    /// The name of the model: a few families need an exception.
    pub name: Option<&'a str>,
}

/// The ids that a file names by their use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpecialIds {
    /// Begins a text.
    pub bos: Option<TokenId>,
    /// Ends a text.
    pub eos: Option<TokenId>,
    /// Ends a turn of a conversation.
    pub eot: Option<TokenId>,
    /// Ends a message that awaits an answer, such as a tool call.
    pub eom: Option<TokenId>,
    /// Stands for what the vocabulary can't spell.
    pub unknown: Option<TokenId>,
}

impl VocabSource<'_> {
    /// Checks that the lists agree and that every id is in the vocabulary.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let n = self.tokens.len();
        if n == 0 {
            return Err(Error::Empty { key: keys::TOKENS });
        }
        if i32::try_from(n).is_err() {
            return Err(Error::VocabularyTooLarge);
        }
        let lengths = [
            (keys::SCORES, self.scores.as_ref().map(Vec::len)),
            (keys::TOKEN_TYPE, self.kinds.as_ref().map(Vec::len)),
        ];
        for (key, len) in lengths {
            if let Some(found) = len.filter(|&len| len != n) {
                return Err(Error::Length { key, found, expected: n });
            }
        }
        for (key, id) in self.ids.named() {
            if let Some(id) = id.filter(|&id| id as usize >= n) {
                return Err(Error::IdBeyondVocabulary { key, id: id.into(), n_vocab: n });
            }
        }
        for (flag, set, key, id) in [
            (keys::ADD_BOS, self.add_bos, keys::BOS, self.ids.bos),
            (keys::ADD_EOS, self.add_eos, keys::EOS, self.ids.eos),
        ] {
            if set == Some(true) && id.is_none() {
                return Err(Error::FlagWithoutId { flag, key });
            }
        }
        match self.scores.iter().flatten().position(|score| score.is_nan()) {
            Some(index) => Err(Error::BadScore { index }),
            None => Ok(()),
        }
    }
}

impl SpecialIds {
    fn named(&self) -> [(&'static str, Option<TokenId>); 5] {
        [
            (keys::BOS, self.bos),
            (keys::EOS, self.eos),
            (keys::EOT, self.eot),
            (keys::EOM, self.eom),
            (keys::UNKNOWN, self.unknown),
        ]
    }
}

/// The metadata keys of a tokenizer.
pub(crate) mod keys {
    pub(crate) const MODEL: &str = "tokenizer.ggml.model";
    pub(crate) const PRE: &str = "tokenizer.ggml.pre";
    pub(crate) const TOKENS: &str = "tokenizer.ggml.tokens";
    pub(crate) const SCORES: &str = "tokenizer.ggml.scores";
    pub(crate) const TOKEN_TYPE: &str = "tokenizer.ggml.token_type";
    pub(crate) const MERGES: &str = "tokenizer.ggml.merges";
    pub(crate) const BOS: &str = "tokenizer.ggml.bos_token_id";
    pub(crate) const EOS: &str = "tokenizer.ggml.eos_token_id";
    pub(crate) const EOT: &str = "tokenizer.ggml.eot_token_id";
    pub(crate) const EOM: &str = "tokenizer.ggml.eom_token_id";
    pub(crate) const UNKNOWN: &str = "tokenizer.ggml.unknown_token_id";
    pub(crate) const ADD_BOS: &str = "tokenizer.ggml.add_bos_token";
    pub(crate) const ADD_EOS: &str = "tokenizer.ggml.add_eos_token";
    pub(crate) const ADD_SPACE_PREFIX: &str = "tokenizer.ggml.add_space_prefix";
    pub(crate) const NAME: &str = "general.name";
}
