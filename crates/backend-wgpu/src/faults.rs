//! Failures on order, for tests of what happens then.

use std::sync::atomic::{AtomicU64, Ordering};

/// What shall fail, counted from 1; 0 never does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// The allocation that finds no memory.
    pub allocation: u64,
    /// The submission that wgpu finds invalid.
    pub submission: u64,
    /// The submission before which the device is lost.
    pub loss: u64,
}

/// How many of each there were.
#[derive(Debug)]
pub(crate) struct FaultPlan {
    faults: Faults,
    allocations: AtomicU64,
    submissions: AtomicU64,
}

/// What happens to a submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Runs,
    Invalid,
    DeviceLost,
}

impl FaultPlan {
    pub(crate) fn new(faults: Faults) -> Self {
        Self { faults, allocations: AtomicU64::new(0), submissions: AtomicU64::new(0) }
    }

    /// Counts an allocation; whether it fails.
    pub(crate) fn next_allocation_fails(&self) -> bool {
        self.allocations.fetch_add(1, Ordering::Relaxed) + 1 == self.faults.allocation
    }

    /// Counts a submission; what becomes of it.
    pub(crate) fn next_submission(&self) -> Fate {
        let number = self.submissions.fetch_add(1, Ordering::Relaxed) + 1;
        match number {
            _ if number == self.faults.loss => Fate::DeviceLost,
            _ if number == self.faults.submission => Fate::Invalid,
            _ => Fate::Runs,
        }
    }
}
