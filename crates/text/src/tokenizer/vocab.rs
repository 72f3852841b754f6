//! The pieces of a vocabulary: one arena of bytes, one index, no allocation per token.

use super::index::Index;
use super::slots::BLOCK;
use super::{Error, TokenId};

/// What a token stands for: `tokenizer.ggml.token_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// A piece of ordinary text.
    Normal,
    /// Stands for text the vocabulary can't spell.
    Unknown,
    /// Steers the model (`<|im_end|>`); never part of ordinary text.
    Control,
    /// Matched literally in every text, before anything is split or merged.
    UserDefined,
    /// Has a place in the vocabulary, but no use.
    Unused,
    /// One byte, written `<0xNN>`.
    Byte,
}

impl TokenKind {
    /// The kind that a number of `tokenizer.ggml.token_type` means; numbers unknown to the format are normal tokens.
    pub(crate) fn from_raw(raw: i32) -> Self {
        match raw {
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            5 => Self::Unused,
            6 => Self::Byte,
            _ => Self::Normal,
        }
    }

    /// Whether splitting and merging a text may end in such a token.
    pub(crate) fn is_text(self) -> bool {
        matches!(self, Self::Normal | Self::UserDefined | Self::Unused)
    }
}

/// All pieces by id, and the ids of the text pieces by their bytes.
#[derive(Debug)]
pub(crate) struct Vocab {
    bytes: Vec<u8>,
    ends: Vec<u32>,
    kinds: Vec<TokenKind>,
    index: Index,
    /// Whether no two text pieces are the same bytes.
    distinct: bool,
}

impl Vocab {
    /// The vocabulary of tokens of these kinds; `write` puts the bytes of each into the arena, `n_bytes` together at most.
    ///
    /// The first of several tokens with the same bytes is the one that [`Self::find`] gives.
    pub(crate) fn new(
        kinds: Vec<TokenKind>,
        n_bytes: usize,
        mut write: impl FnMut(TokenId, TokenKind, &mut Vec<u8>),
    ) -> Result<Self, Error> {
        let mut bytes = Vec::with_capacity(n_bytes);
        let mut ends = Vec::with_capacity(kinds.len());
        for (id, &kind) in (0..).zip(&kinds) {
            write(id, kind, &mut bytes);
            ends.push(u32::try_from(bytes.len()).map_err(|_| Error::VocabularyTooLarge)?);
        }
        let piece = |id| slice(&bytes, &ends, id);
        // Only once all are written: a read of bytes just written would wait for the stores to the index before it.
        let is_indexed = |&(id, kind): &(TokenId, &TokenKind)| kind.is_text() && !piece(id).is_empty();
        let mut texts = (0..).zip(&kinds).filter(is_indexed).map(|(id, _)| id);
        let mut index = Index::with_capacity(texts.clone().count());
        let mut distinct = true;
        let mut block = Vec::with_capacity(BLOCK);
        loop {
            block.clear();
            block.extend(texts.by_ref().take(BLOCK));
            if block.is_empty() {
                break;
            }
            distinct &= index.insert_all(&block, piece);
        }
        Ok(Self { bytes, ends, kinds, index, distinct })
    }

    /// The text token with exactly these bytes.
    #[inline]
    pub(crate) fn find(&self, piece: &[u8]) -> Option<TokenId> {
        self.index.find(piece, |id| self.piece(id))
    }

    /// As [`Self::find`] for each of these pieces, sooner than one after the other.
    pub(crate) fn find_all<const N: usize>(&self, pieces: &[&[u8]; N]) -> [Option<TokenId>; N] {
        self.index.find_all(pieces, |id| self.piece(id))
    }

    /// Whether this is a token that [`Self::find`] gives; false as well if only a look would tell.
    pub(crate) fn is_sure_find(&self, id: TokenId) -> bool {
        self.distinct && self.kind(id).is_text()
    }

    /// The bytes of a token.
    ///
    /// # Panics
    ///
    /// If the id is beyond the vocabulary.
    #[inline]
    pub(crate) fn piece(&self, id: TokenId) -> &[u8] {
        slice(&self.bytes, &self.ends, id)
    }

    /// The kind of a token.
    ///
    /// # Panics
    ///
    /// If the id is beyond the vocabulary.
    pub(crate) fn kind(&self, id: TokenId) -> TokenKind {
        self.kinds[id as usize]
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Every id with its kind, in order.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = (TokenId, TokenKind)> + '_ {
        (0..).zip(self.kinds.iter().copied())
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.bytes.capacity()
            + self.ends.capacity() * size_of::<u32>()
            + self.kinds.capacity() * size_of::<TokenKind>()
            + self.index.heap_bytes()
    }

    /// What [`Self::heap_bytes`] can't exceed for `n` tokens of `n_bytes` bytes.
    pub(crate) fn heap_bound(n: usize, n_bytes: usize) -> usize {
        n_bytes + n * (size_of::<u32>() + size_of::<TokenKind>()) + Index::heap_bound(n)
    }
}

fn slice<'a>(bytes: &'a [u8], ends: &[u32], id: TokenId) -> &'a [u8] {
    let i = id as usize;
    let start = if i == 0 { 0 } else { ends[i - 1] as usize };
    &bytes[start..ends[i] as usize]
}
