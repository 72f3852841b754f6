//! Steps of one row that go on with the columns that the step before has just made: products, and what is done to each of
//! their elements. A thread takes some columns, does all steps of the group with them, and takes the next: who is faster
//! does more, and nobody waits inside of the group.

use std::ops::Range;
use std::sync::atomic::Ordering;

use super::{Run, Work};
use crate::kernels::ROW_UNIT;

/// Least bytes of weights that are worth being taken by themselves: a stream takes a while to get going.
const LEAST_BYTES: usize = 512 << 10;

/// A step that works on some columns of one row.
pub(super) trait ColumnWork {
    /// Does it.
    ///
    /// # Safety
    /// As [`Work::run`], and no other thread has these columns.
    unsafe fn columns(&self, run: &Run<'_>, cols: Range<usize>);
}

/// The steps of a group.
pub(super) struct Group {
    /// Its number among all groups.
    pub(super) id: usize,
    pub(super) cols: usize,
    /// Counter of the columns that are taken.
    pub(super) taken: usize,
    /// Bytes of weights that a column stands for.
    pub(super) col_bytes: usize,
    pub(super) works: Vec<Box<dyn ColumnWork>>,
}

impl Group {
    /// Columns to take when so many are left: few enough for the others to end with this thread, and more than few.
    fn portion(&self, left: usize, threads: usize) -> usize {
        let portion = (left / (2 * threads)).max(LEAST_BYTES / self.col_bytes.max(1));
        let even = self.cols.div_ceil(threads);
        // Little is shared out evenly at once.
        let portion =
            if self.cols * self.col_bytes < 2 * threads * LEAST_BYTES { even } else { portion.min(even) };
        portion.next_multiple_of(ROW_UNIT).min(left)
    }
}

impl Work for Group {
    unsafe fn run(&self, run: &Run<'_>) {
        let (taken, threads) = (&run.counters[self.taken], run.team.count());
        let take = |at: usize| (at < self.cols).then(|| at + self.portion(self.cols - at, threads));
        while let Ok(start) = taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            let cols = start..start + self.portion(self.cols - start, threads);
            for work in &self.works {
                // SAFETY: the caller's promise; nobody else has taken these columns.
                unsafe { work.columns(run, cols.clone()) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portions_shrink_and_little_is_shared_out_at_once() {
        let group = |cols, col_bytes| Group { id: 0, cols, taken: 0, col_bytes, works: Vec::new() };
        let portions = |group: Group, threads| {
            let mut left = group.cols;
            let mut all = Vec::new();
            while left > 0 {
                all.push(group.portion(left, threads));
                left -= all[all.len() - 1];
            }
            all
        };
        let large = portions(group(8192, 1152), 2);
        assert_eq!((large[0], large.iter().sum::<usize>()), (2048, 8192));
        assert!(large.is_sorted_by(|a, b| a >= b) && large.len() < 20, "{large:?}");
        assert_eq!(portions(group(576, 324), 2), [288, 288]);
        assert_eq!(portions(group(40, 0), 3), [16, 16, 8]);
        assert_eq!(portions(group(0, 324), 2), []);
    }
}
