//! The pool of one backend: which buffers exist, which hold a value, and until when (rules A5, A8, A9).
//!
//! Reservation and assignment are two things: a released buffer stays reserved in [`Slots`] and is handed out again, the
//! smallest id first, so the same requests in the same order get the same buffers.

use std::collections::{BTreeMap, BTreeSet};

use minfer_tensor::Bytes;

use crate::backend::BufId;

/// A buffer that holds a value.
#[derive(Clone, Copy, Debug)]
struct Alive {
    class: Bytes,
    /// The last node that needs the value, by index.
    until: usize,
}

/// The reserved buffers of one backend's pool.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    /// Buffers that hold nothing, by class.
    idle: BTreeMap<Bytes, BTreeSet<BufId>>,
    /// Buffers that hold a value.
    buf_alive: BTreeMap<BufId, Alive>,
    /// Buffers in all, by class.
    reserved: BTreeMap<Bytes, usize>,
    live_bytes: Bytes,
    peak_live_bytes: Bytes,
}

impl Slots {
    /// Adds a new, idle buffer.
    pub(crate) fn reserve(&mut self, class: Bytes, id: BufId) {
        *self.reserved.entry(class).or_default() += 1;
        self.idle.entry(class).or_default().insert(id);
    }

    /// Hands out the smallest idle id of a class, alive for good until told otherwise.
    pub(crate) fn take(&mut self, class: Bytes) -> Option<BufId> {
        let id = self.idle.get_mut(&class)?.pop_first()?;
        self.buf_alive.insert(id, Alive { class, until: usize::MAX });
        self.live_bytes = self.live_bytes.saturating_add(class);
        self.peak_live_bytes = self.peak_live_bytes.max(self.live_bytes);
        Some(id)
    }

    /// Sets the last node that needs a buffer's value.
    pub(crate) fn keep_until(&mut self, id: BufId, until: usize) {
        if let Some(alive) = self.buf_alive.get_mut(&id) {
            alive.until = until;
        }
    }

    /// Moves a deadline to a later node, never to an earlier one.
    pub(crate) fn extend_buffer_alive(&mut self, id: BufId, until: usize) {
        if let Some(alive) = self.buf_alive.get_mut(&id) {
            alive.until = alive.until.max(until);
        }
    }

    /// The last node that needs a buffer's value; `None` if it holds none.
    pub(crate) fn alive_until(&self, id: BufId) -> Option<usize> {
        self.buf_alive.get(&id).map(|alive| alive.until)
    }

    /// Releases every buffer that no node from `at` on needs.
    pub(crate) fn sweep(&mut self, at: usize) {
        let (idle, live_bytes) = (&mut self.idle, &mut self.live_bytes);
        self.buf_alive.retain(|&id, alive| {
            let keep = alive.until >= at;
            if !keep {
                idle.entry(alive.class).or_default().insert(id);
                *live_bytes = live_bytes.saturating_sub(alive.class);
            }
            keep
        });
    }

    /// Releases one buffer. Without effect on an idle one.
    pub(crate) fn release(&mut self, id: BufId) {
        if let Some(alive) = self.buf_alive.remove(&id) {
            self.idle.entry(alive.class).or_default().insert(id);
            self.live_bytes = self.live_bytes.saturating_sub(alive.class);
        }
    }

    /// Releases every buffer.
    pub(crate) fn release_all(&mut self) {
        while let Some((&id, _)) = self.buf_alive.first_key_value() {
            self.release(id);
        }
    }

    pub(crate) fn live_bytes(&self) -> Bytes {
        self.live_bytes
    }

    pub(crate) fn peak_live_bytes(&self) -> Bytes {
        self.peak_live_bytes
    }

    pub(crate) fn idle_len(&self) -> usize {
        self.idle.values().map(BTreeSet::len).sum()
    }

    /// Number of buffers, live or idle, by class.
    pub(crate) fn reserved(&self) -> &BTreeMap<Bytes, usize> {
        &self.reserved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLASS: Bytes = Bytes::new(256);

    fn slots(n: usize) -> Slots {
        let mut slots = Slots::default();
        (0..n).rev().for_each(|id| slots.reserve(CLASS, BufId::new(id)));
        slots
    }

    #[test]
    fn a9_the_smallest_idle_id_comes_first() {
        let mut slots = slots(3);
        let taken: Vec<_> = std::iter::from_fn(|| slots.take(CLASS)).map(BufId::index).collect();
        assert_eq!(taken, [0, 1, 2]);
        slots.release(BufId::new(2));
        slots.release(BufId::new(0));
        assert_eq!(slots.take(CLASS), Some(BufId::new(0)));
        assert_eq!(slots.take(Bytes::new(512)), None);
        assert_eq!((slots.idle_len(), slots.live_bytes()), (1, Bytes::new(512)));
        assert_eq!(slots.peak_live_bytes(), Bytes::new(768));
    }

    #[test]
    fn a8_a_deadline_only_moves_later() {
        let mut slots = slots(1);
        let id = slots.take(CLASS).unwrap();
        slots.keep_until(id, 3);
        slots.extend_buffer_alive(id, 5);
        slots.extend_buffer_alive(id, 4);
        slots.sweep(5);
        assert_eq!(slots.alive_until(id), Some(5));
        slots.sweep(6);
        assert_eq!((slots.alive_until(id), slots.idle_len()), (None, 1));
    }
}
