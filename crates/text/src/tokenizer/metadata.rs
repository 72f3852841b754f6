//! From the metadata of a file to the plain data of a tokenizer.

use minfer_gguf::Metadata;
use minfer_tensor::Bytes;

use super::source::keys;
use super::{Error, SpecialIds, TokenKind, Tokenizer, TokenizerModel, VocabSource, both};

impl Tokenizer {
    /// The tokenizer of a file.
    ///
    /// # Errors
    ///
    /// If `tokenizer.ggml.*` is missing, not supported, or contradicts itself; the message names the key.
    pub fn from_metadata(metadata: &Metadata) -> Result<Self, Error> {
        Self::new(&VocabSource::from_metadata(metadata)?)
    }

    /// What [`Self::heap_bytes`] can't exceed for the tokenizer of this file, before it is built.
    ///
    /// For a file without a vocabulary, or with one that can't be read, it is the small bound of an empty one.
    pub fn heap_bound(metadata: &Metadata) -> Bytes {
        let list = |key| metadata.get(key).and_then(|value| value.as_array());
        let texts = list(keys::TOKENS).and_then(|tokens| tokens.byte_strings());
        let n_merges = list(keys::MERGES).map_or(0, |merges| merges.len());
        Bytes::from(Self::heap_bound_of(texts.into_iter().flatten(), n_merges))
    }
}

impl<'a> VocabSource<'a> {
    /// What a file says about its vocabulary, not yet checked against itself.
    ///
    /// # Errors
    ///
    /// If a key is missing or has the wrong type, or the model of tokenizer isn't supported.
    pub fn from_metadata(metadata: &'a Metadata) -> Result<Self, Error> {
        let model = model(metadata)?;
        let kinds = metadata.i32s(keys::TOKEN_TYPE)?;
        let (merges, tokens) = both(|| metadata.strings(keys::MERGES), || metadata.strings(keys::TOKENS));
        Ok(Self {
            model,
            pre: metadata.str(keys::PRE)?,
            tokens: tokens?
                .ok_or(Error::Missing { key: keys::TOKENS, need: "a tokenizer needs its vocabulary" })?,
            scores: if model == TokenizerModel::Spm { metadata.f32s(keys::SCORES)? } else { None },
            kinds: kinds.map(|kinds| kinds.into_iter().map(TokenKind::from_raw).collect()),
            merges: if model == TokenizerModel::Bpe { merges? } else { None },
            ids: SpecialIds {
                bos: metadata.u32(keys::BOS)?,
                eos: metadata.u32(keys::EOS)?,
                eot: metadata.u32(keys::EOT)?,
                eom: metadata.u32(keys::EOM)?,
                unknown: metadata.u32(keys::UNKNOWN)?,
            },
            add_bos: metadata.bool(keys::ADD_BOS)?,
            add_eos: metadata.bool(keys::ADD_EOS)?,
            add_space_prefix: metadata.bool(keys::ADD_SPACE_PREFIX)?,
            name: metadata.str(keys::NAME)?,
        })
    }
}

fn model(metadata: &Metadata) -> Result<TokenizerModel, Error> {
    match metadata.str(keys::MODEL)? {
        Some("gpt2") => Ok(TokenizerModel::Bpe),
        Some("llama") => Ok(TokenizerModel::Spm),
        Some(other) => Err(Error::UnknownModel { found: other.to_owned() }),
        None => Err(Error::Missing { key: keys::MODEL, need: "it names the kind of tokenizer" }),
    }
}
