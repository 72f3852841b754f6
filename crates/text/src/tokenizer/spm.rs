//! SentencePiece BPE: `tokenizer.ggml.model` = `llama`.
//!
//! Characters merge into the neighbouring pair with the best score; a character without a piece falls back to its bytes.
//! Files write a space as `▁`. Pieces and texts are both kept with plain spaces here, which is the same relation.

use super::merge::Merger;
use super::vocab::Vocab;
use super::{Error, TokenId};

/// How files write a space.
pub(crate) const SPACE_MARK: char = '▁';

/// The merge priorities and fallback tokens of a vocabulary.
#[derive(Debug)]
pub(crate) struct Spm {
    /// By token: its merge priority, least first.
    priorities: Vec<u32>,
    /// The `<0xNN>` token of each byte.
    bytes: [Option<TokenId>; 256],
    unknown: Option<TokenId>,
    /// Whether a text gets a space in front, as if it were a word amid others.
    pub(crate) space_prefix: bool,
}

impl Spm {
    /// `scores` has one entry a token, none of them NaN.
    pub(crate) fn new(
        scores: &[f32],
        bytes: [Option<TokenId>; 256],
        unknown: Option<TokenId>,
        space_prefix: bool,
    ) -> Self {
        let priorities = scores.iter().map(|&score| priority(score)).collect();
        Self { priorities, bytes, unknown, space_prefix }
    }

    /// Appends the ids of `text`, which holds no special token.
    ///
    /// # Errors
    ///
    /// If a character has no piece, its bytes have none and there is no unknown token.
    pub(crate) fn encode(
        &self,
        vocab: &Vocab,
        text: &str,
        merger: &mut Merger,
        ids: &mut Vec<TokenId>,
    ) -> Result<(), Error> {
        merger.clear();
        let bytes = text.as_bytes();
        for (at, c) in text.char_indices() {
            let len = c.len_utf8();
            merger.push(vocab.find(&bytes[at..at + len]), len as u32);
        }
        merger.run(|left, right| {
            let start = left.start as usize;
            let id = vocab.find(&bytes[start..start + (left.len + right.len) as usize])?;
            Some((self.priorities[id as usize], id))
        });
        for symbol in merger.symbols() {
            match symbol.id {
                Some(id) => ids.push(id),
                None => self.fall_back(&bytes[symbol.start as usize..][..symbol.len as usize], ids)?,
            }
        }
        Ok(())
    }

    /// One token a byte of the character, or one unknown token for all of it.
    fn fall_back(&self, character: &[u8], ids: &mut Vec<TokenId>) -> Result<(), Error> {
        let missing = character.iter().find(|&&byte| self.bytes[usize::from(byte)].is_none());
        match (missing, self.unknown) {
            (None, _) => ids.extend(character.iter().filter_map(|&byte| self.bytes[usize::from(byte)])),
            (Some(_), Some(unknown)) => ids.push(unknown),
            (Some(&byte), None) => return Err(Error::NoByteToken { byte }),
        }
        Ok(())
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.priorities.capacity() * size_of::<u32>()
    }

    /// What [`Self::heap_bytes`] can't exceed for `n` tokens.
    pub(crate) fn heap_bound(n: usize) -> usize {
        n * size_of::<u32>()
    }
}

/// Maps scores to integers in falling order: the best score is the least priority.
fn priority(score: f32) -> u32 {
    // -0 and 0 are equal scores.
    let bits = (score + 0.0).to_bits();
    let ascending = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
    !ascending
}

/// The byte that a `<0xNN>` token stands for.
pub(crate) fn parse_byte(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    let is_byte = digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_byte.then(|| u8::from_str_radix(digits, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn better_scores_come_first() {
        let scores = [f32::INFINITY, 3.5, 0.0, -0.5, -1000.0, f32::NEG_INFINITY];
        assert!(scores.windows(2).all(|w| priority(w[0]) < priority(w[1])));
        assert_eq!(priority(0.0), priority(-0.0));
    }

    #[test]
    fn byte_tokens() {
        assert_eq!(parse_byte("<0x0A>"), Some(10));
        assert_eq!(parse_byte("<0x+A>"), None);
        assert_eq!(parse_byte("<0xABC>"), None);
    }
}
