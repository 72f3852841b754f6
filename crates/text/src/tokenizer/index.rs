//! Ids by their pieces.
//!
//! Most pieces are short. Those lie in the table itself, so that a look-up costs one access to memory instead of a
//! chain of them. A long piece lies there as its hash, and its bytes are compared only where that agrees.

use foldhash::fast::RandomState;
use std::hash::BuildHasher;

use super::TokenId;
use super::slots::{BLOCK, Probe, Slots};

/// The longest piece that is kept in a slot, in bytes.
const SHORT: usize = 11;

/// The bits of a slot that a piece, or its hash, takes with its length.
const KEY_BITS: u32 = 96;

/// What the key of a long piece has for its length.
const LONG: u8 = u8::MAX;

/// A hash table that finds ids by the bytes of their pieces, which lie in an arena that it is shown for each use.
#[derive(Debug)]
pub(crate) struct Index {
    slots: Slots<KEY_BITS>,
    hasher: RandomState,
}

impl Index {
    /// Room for `n` pieces.
    pub(crate) fn with_capacity(n: usize) -> Self {
        Self { slots: Slots::with_capacity(n), hasher: RandomState::default() }
    }

    /// The id of these bytes, where `piece` gives the bytes of an id.
    #[inline]
    pub(crate) fn find<'a>(&self, bytes: &[u8], piece: impl Fn(TokenId) -> &'a [u8]) -> Option<TokenId> {
        let probe = self.probe(bytes);
        self.finish(probe, bytes, piece)
    }

    /// The id of each of these pieces: sooner than one after the other.
    pub(crate) fn find_all<'a, const N: usize>(
        &self,
        pieces: &[&[u8]; N],
        piece: impl Fn(TokenId) -> &'a [u8] + Copy,
    ) -> [Option<TokenId>; N] {
        let probes = pieces.map(|bytes| self.probe(bytes));
        self.slots.fetch(&probes);
        std::array::from_fn(|i| self.finish(probes[i], pieces[i], piece))
    }

    /// Adds the pieces of these ids, [`BLOCK`] of them at most, except those that are there: whether none was.
    ///
    /// There has to be room for them.
    pub(crate) fn insert_all<'a>(
        &mut self,
        ids: &[TokenId],
        piece: impl Fn(TokenId) -> &'a [u8] + Copy,
    ) -> bool {
        let mut probes = [Probe::default(); BLOCK];
        for (probe, &id) in probes.iter_mut().zip(ids) {
            *probe = self.probe(piece(id));
        }
        self.slots.fetch(&probes[..ids.len()]);
        let mut all_new = true;
        for (&probe, &id) in probes.iter().zip(ids) {
            let bytes = piece(id);
            all_new &= self.slots.insert(probe, id.into(), |other| is_same(bytes, other, piece)) == id.into();
        }
        all_new
    }

    #[inline]
    fn probe(&self, bytes: &[u8]) -> Probe {
        let long = || u128::from(self.hasher.hash_one(bytes)) | u128::from(LONG) << (8 * SHORT);
        self.slots.probe(short_key(bytes).unwrap_or_else(long))
    }

    #[inline]
    fn finish<'a>(&self, probe: Probe, bytes: &[u8], piece: impl Fn(TokenId) -> &'a [u8]) -> Option<TokenId> {
        self.slots.find(probe, |id| is_same(bytes, id, &piece)).map(|id| id as TokenId)
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.slots.heap_bytes()
    }

    /// [`Self::heap_bytes`] with room for `n` pieces.
    pub(crate) fn heap_bound(n: usize) -> usize {
        Slots::<KEY_BITS>::heap_bound(n)
    }
}

/// Whether these bytes are the piece of `id`, if their keys are the same.
#[inline]
fn is_same<'a>(bytes: &[u8], id: u64, piece: impl Fn(TokenId) -> &'a [u8]) -> bool {
    bytes.len() <= SHORT || bytes == piece(id as TokenId)
}

/// The key of a short piece: its bytes and its length. None for a long one.
#[inline]
fn short_key(bytes: &[u8]) -> Option<u128> {
    let len = bytes.len();
    let wide = |at: usize| Some(u64::from_le_bytes(*bytes[at..].first_chunk()?));
    let half = |at: usize| Some(u64::from(u32::from_le_bytes(*bytes[at..].first_chunk()?)));
    // Two loads that overlap spell any length without a loop; the bits that both have are the same.
    let piece = match len {
        0..=3 => bytes.iter().rev().fold(0, |key, &byte| key << 8 | u128::from(byte)),
        4..=7 => u128::from(half(0)? | half(len - 4)? << (8 * (len - 4))),
        8..=SHORT => u128::from(wide(0)?) | u128::from(wide(len - 8)?) << (8 * (len - 8)),
        _ => return None,
    };
    Some(piece | (len as u128) << (8 * SHORT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_finds_its_own_id() {
        let text = b"abcabcabcabcabcabc";
        let pieces: Vec<&[u8]> =
            (1..=text.len()).flat_map(|n| text.windows(n).collect::<Vec<_>>()).chain([&b"a\0"[..]]).collect();
        let mut index = Index::with_capacity(pieces.len());
        let piece = |id: TokenId| pieces[id as usize];
        let ids: Vec<TokenId> = (0..pieces.len() as TokenId).collect();
        for ids in ids.chunks(BLOCK) {
            index.insert_all(ids, piece);
        }
        for &bytes in &pieces {
            let id = index.find(bytes, piece).unwrap();
            assert_eq!(pieces.iter().position(|&piece| piece == bytes), Some(id as usize));
        }
        for bytes in [&b""[..], b"b\0", b"zzzzzzzzzzzzzzz"] {
            assert_eq!(index.find(bytes, piece), None);
        }
    }
}
