//! SentencePiece BPE: `tokenizer.ggml.model` = `llama`.
//!
//! Characters merge into the neighbouring pair with the best score; a character without a piece falls back to its bytes.
//! Files write a space as `▁`. Pieces and texts are both kept with plain spaces here, which is the same relation.

use super::merge::Merger;
use super::vocab::Vocab;
use super::{Error, TokenId};

/// How files write a space.
pub(crate) const SPACE_MARK: char = '▁';

/// Which bytes stand side by side in some piece: a bit for each pair.
///
/// Nothing merges across two bytes that no piece has side by side. A text can be cut there, and is then short words
/// instead of one long one.
#[derive(Debug)]
struct Joints([u64; 1024]);

impl Joints {
    fn new(vocab: &Vocab) -> Self {
        let mut joints = Self([0; 1024]);
        for (id, _) in vocab.kinds().filter(|(_, kind)| kind.is_text()) {
            for pair in vocab.piece(id).windows(2) {
                let (word, bit) = Self::place(pair[0], pair[1]);
                joints.0[word] |= bit;
            }
        }
        joints
    }

    fn has(&self, left: u8, right: u8) -> bool {
        let (word, bit) = Self::place(left, right);
        self.0[word] & bit != 0
    }

    fn place(left: u8, right: u8) -> (usize, u64) {
        (usize::from(left) << 2 | usize::from(right) >> 6, 1 << (right & 63))
    }
}

/// The merge priorities and fallback tokens of a vocabulary.
#[derive(Debug)]
pub(crate) struct Spm {
    /// By token: its merge priority, least first.
    priorities: Vec<u32>,
    /// The `<0xNN>` token of each byte.
    bytes: [Option<TokenId>; 256],
    unknown: Option<TokenId>,
    joints: Joints,
    /// Whether a text gets a space in front, as if it were a word amid others.
    pub(crate) space_prefix: bool,
}

impl Spm {
    /// `scores` has one entry a token, none of them NaN.
    pub(crate) fn new(
        vocab: &Vocab,
        scores: &[f32],
        bytes: [Option<TokenId>; 256],
        unknown: Option<TokenId>,
        space_prefix: bool,
    ) -> Self {
        let priorities = scores.iter().map(|&score| priority(score)).collect();
        Self { priorities, bytes, unknown, joints: Joints::new(vocab), space_prefix }
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
        let bytes = text.as_bytes();
        let mut start = 0;
        for at in 1..bytes.len() {
            if !self.joints.has(bytes[at - 1], bytes[at]) && text.is_char_boundary(at) {
                self.encode_word(vocab, &text[start..at], merger, ids)?;
                start = at;
            }
        }
        self.encode_word(vocab, &text[start..], merger, ids)
    }

    fn encode_word(
        &self,
        vocab: &Vocab,
        word: &str,
        merger: &mut Merger,
        ids: &mut Vec<TokenId>,
    ) -> Result<(), Error> {
        merger.clear();
        let bytes = word.as_bytes();
        for (at, c) in word.char_indices() {
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
    use super::super::TokenKind;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn better_scores_come_first() {
        let scores = [f32::INFINITY, 3.5, 0.0, -0.5, -1000.0, f32::NEG_INFINITY];
        assert!(scores.windows(2).all(|w| priority(w[0]) < priority(w[1])));
        assert_eq!(priority(0.0), priority(-0.0));
    }

    /// Pieces, scores and a text of few characters, so that pieces are met.
    fn cases() -> impl Strategy<Value = (Vec<(String, f32)>, String)> {
        let piece = ("[ab é]{1,4}", (-4i8..4).prop_map(f32::from));
        (prop::collection::vec(piece, 1..30), "[ab é😀]{0,40}")
    }

    /// What is defined: the best pair of all merges, the leftmost of equals, until none does.
    fn naive(pieces: &[(String, f32)], text: &str) -> Vec<String> {
        let score = |text: &str| pieces.iter().find(|(piece, _)| piece == text).map(|&(_, score)| score);
        let mut symbols: Vec<String> = text.chars().map(String::from).collect();
        loop {
            let mut best: Option<(f32, usize)> = None;
            for (i, pair) in symbols.windows(2).enumerate() {
                if let Some(score) = score(&pair.concat())
                    && best.is_none_or(|(most, _)| score > most)
                {
                    best = Some((score, i));
                }
            }
            let Some((_, i)) = best else { return symbols };
            let right = symbols.remove(i + 1);
            symbols[i].push_str(&right);
        }
    }

    proptest! {
        #[test]
        fn cutting_changes_nothing((pieces, text) in cases()) {
            let kinds = vec![TokenKind::Normal; pieces.len()];
            let write = |id, _, bytes: &mut Vec<u8>| bytes.extend_from_slice(pieces[id as usize].0.as_bytes());
            let vocab = Vocab::new(kinds, 0, write).unwrap();
            let scores: Vec<f32> = pieces.iter().map(|&(_, score)| score).collect();
            let unknown = 1000;
            let spm = Spm::new(&vocab, &scores, [None; 256], Some(unknown), false);
            let mut ids = Vec::new();
            spm.encode(&vocab, &text, &mut Merger::default(), &mut ids).unwrap();
            let expected: Vec<TokenId> = naive(&pieces, &text)
                .iter()
                .map(|symbol| vocab.find(symbol.as_bytes()).unwrap_or(unknown))
                .collect();
            prop_assert_eq!(ids, expected);
        }
    }

    #[test]
    fn byte_tokens() {
        assert_eq!(parse_byte("<0x0A>"), Some(10));
        assert_eq!(parse_byte("<0x+A>"), None);
        assert_eq!(parse_byte("<0xABC>"), None);
    }
}
