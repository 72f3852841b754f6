//! The pieces of a vocabulary: one arena of bytes, one hash table, no allocation per token.

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use std::hash::BuildHasher;

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
    fn is_text(self) -> bool {
        matches!(self, Self::Normal | Self::UserDefined | Self::Unused)
    }
}

/// All pieces by id, and the ids of the text pieces by their bytes.
#[derive(Debug)]
pub(crate) struct Vocab {
    bytes: Vec<u8>,
    ends: Vec<u32>,
    kinds: Vec<TokenKind>,
    ids: HashTable<TokenId>,
    hasher: RandomState,
}

impl Vocab {
    /// Room for `n` tokens of `n_bytes` bytes together.
    pub(crate) fn with_capacity(n: usize, n_bytes: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(n_bytes),
            ends: Vec::with_capacity(n),
            kinds: Vec::with_capacity(n),
            ids: HashTable::with_capacity(n),
            hasher: RandomState::default(),
        }
    }

    /// Appends the token with the next id; `write` puts its bytes into the arena.
    ///
    /// The first of several tokens with the same bytes is the one that [`Self::find`] gives.
    pub(crate) fn push(&mut self, kind: TokenKind, write: impl FnOnce(&mut Vec<u8>)) -> Result<(), Error> {
        let id = self.ends.len() as TokenId;
        let start = self.bytes.len();
        write(&mut self.bytes);
        let end = u32::try_from(self.bytes.len()).map_err(|_| Error::VocabularyTooLarge)?;
        self.ends.push(end);
        self.kinds.push(kind);
        let piece = &self.bytes[start..];
        if kind.is_text() && !piece.is_empty() {
            let (bytes, ends, hasher) = (&self.bytes, &self.ends, &self.hasher);
            let entry = self.ids.entry(
                hasher.hash_one(piece),
                |&other| piece == slice(bytes, ends, other),
                |&other| hasher.hash_one(slice(bytes, ends, other)),
            );
            entry.or_insert(id);
        }
        Ok(())
    }

    /// The text token with exactly these bytes.
    #[inline]
    pub(crate) fn find(&self, piece: &[u8]) -> Option<TokenId> {
        self.ids.find(self.hasher.hash_one(piece), |&id| piece == self.piece(id)).copied()
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
            + self.ids.allocation_size()
    }

    /// What [`Self::heap_bytes`] can't exceed for `n` tokens of `n_bytes` bytes.
    pub(crate) fn heap_bound(n: usize, n_bytes: usize) -> usize {
        n_bytes + n * (size_of::<u32>() + size_of::<TokenKind>()) + table_bound(n, size_of::<TokenId>())
    }
}

fn slice<'a>(bytes: &'a [u8], ends: &[u32], id: TokenId) -> &'a [u8] {
    let i = id as usize;
    let start = if i == 0 { 0 } else { ends[i - 1] as usize };
    &bytes[start..ends[i] as usize]
}

/// An upper bound of the bytes of a hash table made with room for `n` entries of `entry` bytes.
///
/// hashbrown fills at most 7/8 of a power of two of buckets, each with its entry and a control byte, and
/// ends with one group of control bytes (64 covers every group width with its alignment).
pub(crate) fn table_bound(n: usize, entry: usize) -> usize {
    if n == 0 {
        return 0;
    }
    let buckets = (n.saturating_mul(8) / 7 + 1).next_power_of_two().max(16);
    buckets.saturating_mul(entry + 1).saturating_add(64)
}
