//! Finding the tokens that are matched literally, before a text is split and merged.

use super::vocab::{TokenKind, Vocab};
use super::{Error, TokenId};

/// The longest special token. Real ones have some dozens of bytes; the search costs this much a byte of text at worst.
const MAX_LEN: usize = 512;

/// The control, unknown and user-defined tokens, sorted by their bytes.
#[derive(Debug)]
pub(crate) struct Specials {
    sorted: Vec<TokenId>,
    /// By first byte: where its tokens begin in `sorted`; they end where those of the next byte begin.
    first: [u32; 257],
}

/// A special token in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) id: TokenId,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Specials {
    /// Collects the special tokens of a vocabulary.
    ///
    /// # Errors
    ///
    /// If one is longer than any real one.
    pub(crate) fn new(vocab: &Vocab) -> Result<Self, Error> {
        let special = |&(id, kind): &(TokenId, TokenKind)| is_special(kind) && !vocab.piece(id).is_empty();
        let mut sorted = Vec::with_capacity(vocab.kinds().filter(special).count());
        sorted.extend(vocab.kinds().filter(special).map(|(id, _)| id));
        if let Some(&id) = sorted.iter().find(|&&id| vocab.piece(id).len() > MAX_LEN) {
            return Err(Error::SpecialTooLong { id, len: vocab.piece(id).len(), most: MAX_LEN });
        }
        sorted.sort_unstable_by(|&a, &b| vocab.piece(a).cmp(vocab.piece(b)).then(a.cmp(&b)));
        let first = std::array::from_fn(|byte| {
            sorted.partition_point(|&id| usize::from(vocab.piece(id)[0]) < byte) as u32
        });
        Ok(Self { sorted, first })
    }

    /// The first special token in `text`, the longest of those that begin there.
    ///
    /// Control and unknown tokens count only with `control`; user-defined ones always.
    pub(crate) fn find(&self, vocab: &Vocab, text: &[u8], from: usize, control: bool) -> Option<Found> {
        (from..text.len()).find_map(|start| {
            let id = self.longest_at(vocab, &text[start..], control)?;
            Some(Found { id, start, end: start + vocab.piece(id).len() })
        })
    }

    /// The special token with exactly these bytes.
    pub(crate) fn exact(&self, vocab: &Vocab, text: &[u8]) -> Option<TokenId> {
        self.longest_at(vocab, text, true).filter(|&id| vocab.piece(id) == text)
    }

    /// The longest token that `text` begins with.
    fn longest_at(&self, vocab: &Vocab, text: &[u8], control: bool) -> Option<TokenId> {
        let byte = usize::from(*text.first()?);
        let mut range = &self.sorted[self.first[byte] as usize..self.first[byte + 1] as usize];
        let mut longest = None;
        for depth in 1..=text.len() {
            // All in range begin with text[..depth]; those that end here come first.
            while let Some((&id, rest)) = range.split_first() {
                if vocab.piece(id).len() > depth {
                    break;
                }
                if control || vocab.kind(id) == TokenKind::UserDefined {
                    longest = Some(id);
                }
                range = rest;
            }
            let Some(&next) = text.get(depth) else { break };
            let begin = range.partition_point(|&id| vocab.piece(id)[depth] < next);
            let end = range.partition_point(|&id| vocab.piece(id)[depth] <= next);
            range = &range[begin..end];
            if range.is_empty() {
                break;
            }
        }
        longest
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.sorted.capacity() * size_of::<TokenId>()
    }

    /// What [`Self::heap_bytes`] can't exceed for `n` tokens.
    pub(crate) fn heap_bound(n: usize) -> usize {
        n * size_of::<TokenId>()
    }
}

fn is_special(kind: TokenKind) -> bool {
    matches!(kind, TokenKind::Control | TokenKind::Unknown | TokenKind::UserDefined)
}
