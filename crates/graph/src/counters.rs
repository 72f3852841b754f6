//! What a backend has done so far.

/// Totals since the device was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Kernels that were started.
    pub dispatches: u64,
    /// Batches of work that were handed to the device: segments, uploads, read-backs.
    pub submissions: u64,
    /// Bytes of weights that kernels had to read, each weight once a dispatch.
    pub weight_bytes: u64,
}

impl Counters {
    /// What was done since `before`.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            dispatches: self.dispatches - before.dispatches,
            submissions: self.submissions - before.submissions,
            weight_bytes: self.weight_bytes - before.weight_bytes,
        }
    }
}
