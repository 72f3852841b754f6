//! Which rows of a product a thread computes.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A thread's rows of a weight matrix.
#[derive(Clone, Debug)]
pub enum Share<'a> {
    /// These.
    Rows(Range<usize>),
    /// Of all rows, what no other thread has taken yet: who is faster takes more.
    Rest {
        /// Rows that are taken; 0 before the product, and the same for all of its threads.
        taken: &'a AtomicUsize,
        /// All rows.
        rows: usize,
        /// Rows to take at a time, a multiple of [`ROW_UNIT`](super::ROW_UNIT).
        unit: usize,
    },
}

impl Share<'_> {
    /// The next rows, at most `most`, which is the same for all threads and a multiple of [`ROW_UNIT`](super::ROW_UNIT).
    #[inline]
    pub(crate) fn next(&mut self, most: usize) -> Option<Range<usize>> {
        let next = match self {
            Share::Rows(rows) => {
                let next = rows.start..rows.end.min(rows.start + most);
                rows.start = next.end;
                next
            }
            Share::Rest { taken, rows, unit } => {
                let unit = most.min(*unit);
                let start = taken.fetch_add(unit, Ordering::Relaxed).min(*rows);
                start..(start + unit).min(*rows)
            }
        };
        (!next.is_empty()).then_some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_taken_once_and_to_the_last() {
        let taken = AtomicUsize::new(0);
        let rest = || Share::Rest { taken: &taken, rows: 100, unit: 48 };
        let (mut a, mut b) = (rest(), rest());
        let got = [a.next(32), b.next(32), b.next(32), a.next(32), b.next(32)];
        assert_eq!(got, [Some(0..32), Some(32..64), Some(64..96), Some(96..100), None]);
        let mut own = Share::Rows(16..50);
        assert_eq!([own.next(32), own.next(32), own.next(32)], [Some(16..48), Some(48..50), None]);
    }
}
