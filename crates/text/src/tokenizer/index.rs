//! Ids by their pieces.
//!
//! Most pieces are short. Those lie in the table itself, so that a look-up costs one access to memory instead of a
//! chain of them; this halves the time that a vocabulary takes to load and that SentencePiece takes to merge.

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use std::hash::BuildHasher;

use super::TokenId;
use super::vocab::table_bound;

/// The longest piece that is kept in a slot, in bytes.
const SHORT: usize = 11;

/// The bits of a slot that the id takes: above the piece and its length.
const ID_SHIFT: u32 = 96;

/// A hash table that finds ids by the bytes of their pieces, which lie in an arena that it is shown for each use.
#[derive(Debug)]
pub(crate) struct Index {
    /// The short pieces, each with its length and id; 0 is a free slot. Open addressing, at most 3/4 full.
    short: Box<[u128]>,
    long: HashTable<TokenId>,
    hasher: RandomState,
}

impl Index {
    /// Room for so many short and long pieces.
    pub(crate) fn with_capacity(n_short: usize, n_long: usize) -> Self {
        Self {
            short: vec![0; n_slots(n_short)].into_boxed_slice(),
            long: HashTable::with_capacity(n_long),
            hasher: RandomState::default(),
        }
    }

    /// Whether a piece doesn't fit a slot.
    pub(crate) fn is_long(piece: &[u8]) -> bool {
        piece.len() > SHORT
    }

    /// The id of these bytes, where `piece` gives the bytes of an id.
    #[inline]
    pub(crate) fn find<'a>(&self, bytes: &[u8], piece: impl Fn(TokenId) -> &'a [u8]) -> Option<TokenId> {
        match short_key(bytes) {
            Some(key) => {
                let slot = self.short[self.slot(key)];
                (slot != 0).then_some((slot >> ID_SHIFT) as TokenId)
            }
            None => self.long.find(self.hasher.hash_one(bytes), |&id| bytes == piece(id)).copied(),
        }
    }

    /// The id of the piece of `id`, which from now on is `id` itself if there was none.
    ///
    /// There has to be room for it.
    pub(crate) fn insert<'a>(&mut self, id: TokenId, piece: impl Fn(TokenId) -> &'a [u8]) -> TokenId {
        let bytes = piece(id);
        let Some(key) = short_key(bytes) else {
            let hasher = &self.hasher;
            let entry = self.long.entry(
                hasher.hash_one(bytes),
                |&other| bytes == piece(other),
                |&other| hasher.hash_one(piece(other)),
            );
            return *entry.or_insert(id).get();
        };
        let slot = self.slot(key);
        if self.short[slot] == 0 {
            self.short[slot] = key | u128::from(id) << ID_SHIFT;
        }
        (self.short[slot] >> ID_SHIFT) as TokenId
    }

    /// Where the piece with this key is, or would be.
    #[inline]
    fn slot(&self, key: u128) -> usize {
        let n = self.short.len();
        // The hash as a fraction of the table.
        let mut at = ((u128::from(self.hasher.hash_one(key)) * n as u128) >> 64) as usize;
        while self.short[at] != 0 && (self.short[at] ^ key) << (128 - ID_SHIFT) != 0 {
            at = if at + 1 == n { 0 } else { at + 1 };
        }
        at
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.short) + self.long.allocation_size()
    }

    /// What [`Self::heap_bytes`] can't exceed for `n` pieces, up to `n_long` of which are long.
    pub(crate) fn heap_bound(n: usize, n_long: usize) -> usize {
        n_slots(n).saturating_mul(size_of::<u128>()).saturating_add(table_bound(n_long, size_of::<TokenId>()))
    }
}

fn n_slots(n: usize) -> usize {
    n + n / 3 + 1
}

/// A short piece with its length: the lower bits of its slot. None for a long or empty one.
#[inline]
fn short_key(bytes: &[u8]) -> Option<u128> {
    let len = bytes.len();
    let wide = |at: usize| Some(u64::from_le_bytes(*bytes[at..].first_chunk()?));
    let half = |at: usize| Some(u64::from(u32::from_le_bytes(*bytes[at..].first_chunk()?)));
    // Two loads that overlap spell any length without a loop; the bits that both have are the same.
    let piece = match len {
        0 => return None,
        1..=3 => bytes.iter().rev().fold(0, |key, &byte| key << 8 | u128::from(byte)),
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
        let mut index = Index::with_capacity(pieces.len(), pieces.len());
        let piece = |id: TokenId| pieces[id as usize];
        for id in 0..pieces.len() {
            index.insert(id as TokenId, piece);
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
