//! A hash table in one array: a look-up is one access to memory, and several look-ups overlap theirs.

use foldhash::fast::RandomState;
use std::hash::BuildHasher;
use std::hint::black_box;

/// How many look-ups are worth doing together: about as many as a core has accesses to memory under way.
pub(crate) const BLOCK: usize = 32;

/// A slot without an entry: no key with its value has all bits.
///
/// It isn't 0, so that making a table writes to all of it. Memory that is only known to be 0 would be mapped twice:
/// when a look-up reads it, and again when an entry is written.
const FREE: u128 = u128::MAX;

/// Entries of a key, which has the lower `KEY_BITS` bits, and a value above it.
///
/// Open addressing, at most 5/8 full.
#[derive(Debug)]
pub(crate) struct Slots<const KEY_BITS: u32> {
    slots: Box<[u128]>,
    hasher: RandomState,
}

/// What is known of a look-up before its access to memory.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Probe {
    key: u128,
    /// Where the search for the key begins.
    home: usize,
}

impl<const KEY_BITS: u32> Slots<KEY_BITS> {
    /// Room for `n` entries.
    pub(crate) fn with_capacity(n: usize) -> Self {
        Self { slots: vec![FREE; n_slots(n)].into_boxed_slice(), hasher: RandomState::default() }
    }

    /// Begins a look-up.
    #[inline]
    pub(crate) fn probe(&self, key: u128) -> Probe {
        // The hash as a fraction of the table.
        let home = (u128::from(self.hasher.hash_one(key)) * self.slots.len() as u128) >> 64;
        Probe { key, home: home as usize }
    }

    /// Brings what these look-ups need into the cache, all at the same time.
    #[inline]
    pub(crate) fn fetch(&self, probes: &[Probe]) {
        black_box(probes.iter().fold(0, |all, probe| all | self.slots[probe.home]));
    }

    /// The value of a key; `is_same` tells by the value whether an entry with this key is the one.
    #[inline]
    pub(crate) fn find(&self, probe: Probe, is_same: impl Fn(u64) -> bool) -> Option<u64> {
        let slot = self.slots[self.place(probe, is_same)];
        (slot != FREE).then_some((slot >> KEY_BITS) as u64)
    }

    /// The value of a key, which from now on is `value` if there was none. There has to be room for it.
    #[inline]
    pub(crate) fn insert(&mut self, probe: Probe, value: u64, is_same: impl Fn(u64) -> bool) -> u64 {
        let slot = &mut self.slots[self.place(probe, is_same)];
        if *slot == FREE {
            *slot = probe.key | u128::from(value) << KEY_BITS;
        }
        (*slot >> KEY_BITS) as u64
    }

    /// Where the entry is, or would be.
    #[inline]
    fn place(&self, probe: Probe, is_same: impl Fn(u64) -> bool) -> usize {
        let mut at = probe.home;
        loop {
            let slot = self.slots[at];
            let has_key = (slot ^ probe.key) << (u128::BITS - KEY_BITS) == 0;
            if slot == FREE || (has_key && is_same((slot >> KEY_BITS) as u64)) {
                return at;
            }
            at = if at + 1 == self.slots.len() { 0 } else { at + 1 };
        }
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.slots)
    }

    /// [`Self::heap_bytes`] with room for `n` entries.
    pub(crate) fn heap_bound(n: usize) -> usize {
        n_slots(n).saturating_mul(size_of::<u128>())
    }
}

fn n_slots(n: usize) -> usize {
    n + n / 5 * 3 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_table_finds_every_entry_and_nothing_else() {
        for n in [0, 1, 5, 1000] {
            let mut slots = Slots::<96>::with_capacity(n);
            for key in 0..n as u64 {
                let probe = slots.probe(key.into());
                assert_eq!(slots.insert(probe, key + 7, |_| true), key + 7);
                assert_eq!(slots.insert(probe, 0, |_| true), key + 7, "the first value stays");
            }
            for key in 0..2 * n as u64 {
                let found = slots.find(slots.probe(key.into()), |_| true);
                assert_eq!(found, (key < n as u64).then_some(key + 7), "{key} of {n}");
            }
        }
    }

    /// Two long pieces may have one hash.
    #[test]
    fn entries_of_one_key_are_told_apart_by_their_values() {
        let mut slots = Slots::<96>::with_capacity(3);
        let probe = slots.probe(1);
        for value in 0..3 {
            assert_eq!(slots.insert(probe, value, |other| other == value), value);
        }
        for value in 0..4 {
            assert_eq!(slots.find(probe, |other| other == value), (value < 3).then_some(value));
        }
    }
}
