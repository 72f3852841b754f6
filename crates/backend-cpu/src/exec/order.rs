//! Which steps must wait for all threads before they start.
//!
//! Each step says what memory it touches and how the threads share it out. Two steps may follow each other without a
//! barrier if what they both touch is only read, or if each thread touches the same part of it in both.

use minfer_graph::{BatchCounts, Rows, Shape};

/// Memory from an address on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// First byte.
    pub(crate) start: usize,
    /// Bytes.
    pub(crate) len: usize,
}

impl Span {
    /// Whether a byte lies in both.
    pub(crate) fn overlaps(self, other: Self) -> bool {
        self.start < other.start + other.len && other.start < self.start + self.len
    }
}

/// The rows of a value that a run computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LiveRows {
    /// What the rows stand for.
    pub(crate) rows: Rows,
    /// Extent at the full rung.
    pub(crate) shape: Shape,
}

impl LiveRows {
    /// Their number.
    pub(crate) fn count(self, counts: BatchCounts) -> usize {
        self.rows.live(self.shape, counts)
    }
}

/// How threads share out a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Split {
    /// Each takes some of the rows.
    Rows(LiveRows),
    /// Each takes the same columns of all rows.
    Cols(LiveRows),
    /// Each takes columns as it can, and does all steps of the group of this number with them.
    Group(usize),
    /// Each has a part of its own, by its index.
    Thread,
    /// In some other way: nothing is known.
    Any,
}

/// One span that a step touches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    span: Span,
    split: Split,
    writes: bool,
}

impl Access {
    /// A span that is read.
    pub(crate) fn read(span: Span, split: Split) -> Self {
        Self { span, split, writes: false }
    }

    /// A span that is written, and perhaps read.
    pub(crate) fn write(span: Span, split: Split) -> Self {
        Self { span, split, writes: true }
    }

    /// Whether it writes a byte of `span`.
    pub(crate) fn overwrites(&self, span: Span) -> bool {
        self.writes && self.span.overlaps(span)
    }

    fn conflicts(&self, other: &Self) -> bool {
        let same_part = self.span == other.span && self.split == other.split && self.split != Split::Any;
        (self.writes || other.writes) && self.span.overlaps(other.span) && !same_part
    }
}

/// The accesses of the steps so far.
#[derive(Debug, Default)]
pub(crate) struct Order {
    since_barrier: Vec<Access>,
    written: Vec<Span>,
}

impl Order {
    /// Whether a step must wait for all threads.
    pub(crate) fn waits(&self, accesses: &[Access]) -> bool {
        accesses.iter().any(|new| self.since_barrier.iter().any(|old| old.conflicts(new)))
    }

    /// Adds a step; whether it must wait for all threads.
    pub(crate) fn add(&mut self, accesses: &[Access]) -> bool {
        let wait = self.waits(accesses);
        if wait {
            self.since_barrier.clear();
        }
        self.since_barrier.extend(accesses);
        self.written.extend(accesses.iter().filter(|a| a.writes).map(|a| a.span));
        wait
    }

    /// Whether some step so far writes to `span`.
    pub(crate) fn was_written(&self, span: Span) -> bool {
        self.written.iter().any(|w| w.overlaps(span))
    }

    /// Whether `span` was last written with this split, and no barrier came since.
    pub(crate) fn pending(&self, span: Span, split: Split) -> bool {
        let last = self.since_barrier.iter().rev().find(|a| a.writes && a.span.overlaps(span));
        last.is_some_and(|a| a.split == split && a.span == span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Span = Span { start: 1000, len: 100 };
    const B: Span = Span { start: 1100, len: 100 };

    fn rows(n: usize) -> Split {
        Split::Rows(LiveRows { rows: Rows::PerToken(1), shape: Shape::new(n, 4) })
    }

    fn waits(first: Access, second: Access) -> bool {
        let mut order = Order::default();
        assert!(!order.add(&[first]));
        order.add(&[second])
    }

    #[test]
    fn only_conflicts_wait() {
        assert!(waits(Access::write(A, Split::Any), Access::read(A, Split::Any)));
        assert!(waits(Access::read(A, Split::Any), Access::write(A, Split::Any)));
        assert!(!waits(Access::read(A, Split::Any), Access::read(A, Split::Any)));
        assert!(!waits(Access::write(A, Split::Any), Access::read(B, Split::Any)));
    }

    #[test]
    fn the_same_part_needs_no_barrier() {
        assert!(!waits(Access::write(A, rows(5)), Access::read(A, rows(5))));
        assert!(!waits(Access::write(A, Split::Thread), Access::write(A, Split::Thread)));
        assert!(!waits(Access::write(A, Split::Group(1)), Access::read(A, Split::Group(1))));
        assert!(waits(Access::write(A, Split::Group(1)), Access::read(A, Split::Group(2))));
        assert!(waits(Access::write(A, rows(5)), Access::read(A, rows(6))));
        assert!(waits(Access::write(A, rows(5)), Access::read(Span { len: 50, ..A }, rows(5))));
    }

    #[test]
    fn a_barrier_settles_what_came_before() {
        let mut order = Order::default();
        order.add(&[Access::write(A, rows(5)), Access::write(B, rows(5))]);
        assert!(order.pending(A, rows(5)));
        assert!(order.add(&[Access::read(A, Split::Any)]));
        assert!(!order.add(&[Access::read(B, Split::Any)]));
        assert!(!order.pending(A, rows(5)));
        assert!(order.was_written(A));
    }
}
