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
