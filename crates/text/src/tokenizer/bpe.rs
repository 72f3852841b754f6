//! Byte-level byte-pair encoding: `tokenizer.ggml.model` = `gpt2`.

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use super::merge::Merger;
use super::split::PreTokenizer;
use super::vocab::{Vocab, table_bound};
use super::{Error, TokenId, byte_level};

/// What two neighbouring tokens become, and how early.
#[derive(Debug, Clone, Copy)]
struct Merge {
    rank: u32,
    id: TokenId,
}

/// The merges of a vocabulary and the rule that splits a text into words.
#[derive(Debug)]
pub(crate) struct Bpe {
    merges: HashMap<u64, Merge, RandomState>,
    /// The token of each single byte.
    bytes: [Option<TokenId>; 256],
    split: PreTokenizer,
}

impl Bpe {
    /// Resolves the merges, each two pieces with a space between, against the vocabulary.
    ///
    /// # Errors
    ///
    /// If a merge is no pair, or one of the pieces or their union is no token.
    pub(crate) fn new(vocab: &Vocab, merges: &[&str], split: PreTokenizer) -> Result<Self, Error> {
        let mut table = HashMap::with_capacity_and_hasher(merges.len(), RandomState::default());
        let mut piece = Vec::new();
        for (rank, text) in merges.iter().enumerate() {
            let not_a_pair = || Error::BadMerge { index: rank, text: (*text).to_owned() };
            let (left, right) = text.split_once(' ').ok_or_else(not_a_pair)?;
            if left.is_empty() || right.is_empty() {
                return Err(not_a_pair());
            }
            piece.clear();
            byte_level::decode(left, &mut piece);
            let middle = piece.len();
            byte_level::decode(right, &mut piece);
            let find = |bytes| {
                vocab
                    .find(bytes)
                    .ok_or_else(|| Error::MergeWithoutToken { index: rank, text: (*text).to_owned() })
            };
            let (left, right, id) = (find(&piece[..middle])?, find(&piece[middle..])?, find(&piece)?);
            // The first of two equal merges has the better rank.
            table.entry(key(left, right)).or_insert(Merge { rank: rank as u32, id });
        }
        let bytes = std::array::from_fn(|byte| vocab.find(&[byte as u8]));
        Ok(Self { merges: table, bytes, split })
    }

    /// Appends the ids of `text`, which holds no special token.
    ///
    /// # Errors
    ///
    /// If the text has a byte without a token.
    pub(crate) fn encode(
        &self,
        vocab: &Vocab,
        text: &str,
        merger: &mut Merger,
        ids: &mut Vec<TokenId>,
    ) -> Result<(), Error> {
        let mut result = Ok(());
        self.split.split(text, &mut |word| {
            if result.is_ok() {
                result = self.encode_word(vocab, word.as_bytes(), merger, ids);
            }
        });
        result
    }

    fn encode_word(
        &self,
        vocab: &Vocab,
        word: &[u8],
        merger: &mut Merger,
        ids: &mut Vec<TokenId>,
    ) -> Result<(), Error> {
        if self.split.whole_words
            && let Some(id) = vocab.find(word)
        {
            ids.push(id);
            return Ok(());
        }
        merger.clear();
        for &byte in word {
            let id = self.bytes[usize::from(byte)].ok_or(Error::NoByteToken { byte })?;
            merger.push(Some(id), 1);
        }
        merger.run(|left, right| {
            let merge = self.merges.get(&key(left.id?, right.id?))?;
            Some((merge.rank, merge.id))
        });
        ids.extend(merger.symbols().filter_map(|symbol| symbol.id));
        Ok(())
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.merges.allocation_size()
    }

    /// What [`Self::heap_bytes`] can't exceed for `n` merges.
    pub(crate) fn heap_bound(n: usize) -> usize {
        table_bound(n, size_of::<(u64, Merge)>())
    }
}

fn key(left: TokenId, right: TokenId) -> u64 {
    u64::from(left) << 32 | u64::from(right)
}
