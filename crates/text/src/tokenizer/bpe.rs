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
    /// Resolves the merges, each two pieces with a space between, against the vocabulary, whose `texts` are as in the file.
    ///
    /// # Errors
    ///
    /// If a merge is no pair, or one of the pieces or their union is no token.
    pub(crate) fn new(
        vocab: &Vocab,
        texts: &[&str],
        merges: &[&str],
        split: PreTokenizer,
    ) -> Result<Self, Error> {
        let mut table = HashMap::with_capacity_and_hasher(merges.len(), RandomState::default());
        let mut resolver = Resolver { vocab, texts, last: 0, piece: Vec::new() };
        for (rank, text) in merges.iter().enumerate() {
            let owned = || (*text).to_owned();
            let pair = text.split_once(' ').filter(|(left, right)| !left.is_empty() && !right.is_empty());
            let pair = pair.ok_or_else(|| Error::BadMerge { index: rank, text: owned() })?;
            let (key, id) = resolver
                .resolve(pair)
                .ok_or_else(|| Error::MergeWithoutToken { index: rank, text: owned() })?;
            // The first of two equal merges has the better rank.
            table.entry(key).or_insert(Merge { rank: rank as u32, id });
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

/// Finds the tokens of merges.
struct Resolver<'a> {
    vocab: &'a Vocab,
    texts: &'a [&'a str],
    /// What the merge before made.
    last: TokenId,
    piece: Vec<u8>,
}

impl Resolver<'_> {
    /// The key of a merge and what it makes; none if one of the three is no token.
    fn resolve(&mut self, (left, right): (&str, &str)) -> Option<(u64, TokenId)> {
        let (id, middle) = self.guess(left, right).or_else(|| self.search(left, right))?;
        self.last = id;
        let (left, right) = self.vocab.piece(id).split_at(middle);
        Some((key(self.vocab.find(left)?, self.vocab.find(right)?), id))
    }

    /// The token of the union and where its right piece begins, if this merge makes what the one before made, or the
    /// token after it: most files list merges by their results.
    fn guess(&self, left: &str, right: &str) -> Option<(TokenId, usize)> {
        let is_union = |text: &str| {
            text.len() == left.len() + right.len() && text.starts_with(left) && text.ends_with(right)
        };
        let id = [self.last, self.last + 1]
            .into_iter()
            .find(|&id| self.texts.get(id as usize).is_some_and(|text| is_union(text)))?;
        // As many bytes as characters: each character stands for one byte.
        let (left, right) = (left.chars().count(), right.chars().count());
        let plain = self.vocab.piece(id).len() == left + right && self.vocab.is_sure_find(id);
        plain.then_some((id, left))
    }

    /// As [`Self::guess`], for any merge.
    fn search(&mut self, left: &str, right: &str) -> Option<(TokenId, usize)> {
        self.piece.clear();
        byte_level::decode(left, &mut self.piece);
        let middle = self.piece.len();
        byte_level::decode(right, &mut self.piece);
        Some((self.vocab.find(&self.piece)?, middle))
    }
}

fn key(left: TokenId, right: TokenId) -> u64 {
    u64::from(left) << 32 | u64::from(right)
}
