//! Byte-level byte-pair encoding: `tokenizer.ggml.model` = `gpt2`.

use super::merge::Merger;
use super::slots::{BLOCK, Probe, Slots};
use super::split::PreTokenizer;
use super::vocab::Vocab;
use super::{Error, TokenId, both, byte_level};

/// The merges of a vocabulary and the rule that splits a text into words.
#[derive(Debug)]
pub(crate) struct Bpe {
    /// By the two neighbours (see [`key`]): how early they merge, and below these bits what they become.
    merges: Slots<64>,
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
        let (first, second) = merges.split_at(merges.len() / 2);
        let resolve =
            |merges, from| Resolver { vocab, texts, last: 0, piece: Vec::new() }.resolve(merges, from);
        let (second, first) = both(|| resolve(second, first.len()), || resolve(first, 0));
        let (first, second) = (first?, second?);
        let mut table = Slots::with_capacity(merges.len());
        insert(&mut table, &first, 0);
        insert(&mut table, &second, first.len());
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
            let found = self.merges.find(self.merges.probe(key(left.id?, right.id?)), |_| true)?;
            Some(((found >> 32) as u32, found as TokenId))
        });
        ids.extend(merger.symbols().filter_map(|symbol| symbol.id));
        Ok(())
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.merges.heap_bytes()
    }

    /// What [`Self::heap_bytes`] can't exceed for `n` merges.
    pub(crate) fn heap_bound(n: usize) -> usize {
        Slots::<64>::heap_bound(n)
    }
}

/// The tokens of a merge: its two parts, and what it makes.
type Merge = [TokenId; 3];

/// Adds merges, the first of which has this rank.
fn insert(table: &mut Slots<64>, merges: &[Merge], first: usize) {
    let mut rank = first as u64;
    for block in merges.chunks(BLOCK) {
        let mut probes = [Probe::default(); BLOCK];
        for (probe, &[left, right, _]) in probes.iter_mut().zip(block) {
            *probe = table.probe(key(left, right));
        }
        table.fetch(&probes[..block.len()]);
        for (&probe, &[_, _, union]) in probes.iter().zip(block) {
            // The first of two equal merges has the better rank.
            table.insert(probe, rank << 32 | u64::from(union), |_| true);
            rank += 1;
        }
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
    /// Finds the tokens of these merges, the first of which has this rank.
    fn resolve(mut self, merges: &[&str], first: usize) -> Result<Vec<Merge>, Error> {
        let mut found = Vec::with_capacity(merges.len());
        for (block, rank) in merges.chunks(BLOCK).zip((first..).step_by(BLOCK)) {
            self.resolve_block(block, rank, &mut found)?;
        }
        Ok(found)
    }

    /// As [`Self::resolve`], for [`BLOCK`] merges at most.
    fn resolve_block(&mut self, merges: &[&str], first: usize, found: &mut Vec<Merge>) -> Result<(), Error> {
        let mut ids = [0; BLOCK];
        let mut parts: [&[u8]; 2 * BLOCK] = [&[]; 2 * BLOCK];
        let mut n = 0;
        // An error waits until the parts of the merges before it are known to be tokens.
        let mut result = Ok(());
        for text in merges {
            match self.union(text, first + n) {
                Ok((id, middle)) => {
                    ids[n] = id;
                    (parts[2 * n], parts[2 * n + 1]) = self.vocab.piece(id).split_at(middle);
                    n += 1;
                }
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        let parts = self.vocab.find_all(&parts);
        for (i, (pair, id)) in parts.as_chunks().0.iter().zip(ids).enumerate().take(n) {
            let &[Some(left), Some(right)] = pair else { return Err(no_token(merges[i], first + i)) };
            found.push([left, right, id]);
        }
        result
    }

    /// The token that a merge makes, and where its right part begins.
    fn union(&mut self, text: &str, rank: usize) -> Result<(TokenId, usize), Error> {
        let space = text.bytes().position(|byte| byte == b' ').filter(|&at| at > 0 && at + 1 < text.len());
        let Some(space) = space else { return Err(Error::BadMerge { index: rank, text: text.to_owned() }) };
        let (left, right) = (&text[..space], &text[space + 1..]);
        let union = self.guess(left, right).or_else(|| self.search(left, right));
        let (id, middle) = union.ok_or_else(|| no_token(text, rank))?;
        self.last = id;
        Ok((id, middle))
    }

    /// As [`Self::search`], if this merge makes what the one before made, or the token after it: most files list merges
    /// by their results.
    fn guess(&self, left: &str, right: &str) -> Option<(TokenId, usize)> {
        let is_union = |text: &str| {
            text.len() == left.len() + right.len() && text.starts_with(left) && text.ends_with(right)
        };
        let id = [self.last, self.last + 1]
            .into_iter()
            .find(|&id| self.texts.get(id as usize).is_some_and(|text| is_union(text)))?;
        // As many bytes as characters: each character stands for one byte.
        let (left, right) = (n_chars(left), n_chars(right));
        let plain = self.vocab.piece(id).len() == left + right && self.vocab.is_sure_find(id);
        plain.then_some((id, left))
    }

    /// The token of the union and where its right part begins.
    fn search(&mut self, left: &str, right: &str) -> Option<(TokenId, usize)> {
        self.piece.clear();
        byte_level::decode(left, &mut self.piece);
        let middle = self.piece.len();
        byte_level::decode(right, &mut self.piece);
        Some((self.vocab.find(&self.piece)?, middle))
    }
}

/// The characters of a short text: its bytes but those that continue one.
fn n_chars(text: &str) -> usize {
    text.bytes().map(|byte| usize::from(byte & 0xC0 != 0x80)).sum()
}

fn no_token(merge: &str, rank: usize) -> Error {
    Error::MergeWithoutToken { index: rank, text: merge.to_owned() }
}

fn key(left: TokenId, right: TokenId) -> u128 {
    u128::from(u64::from(left) << 32 | u64::from(right))
}
