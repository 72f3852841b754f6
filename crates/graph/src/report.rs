//! What a backend holds: the accounting surface (rule A5).

use minfer_tensor::Bytes;

use crate::allocplan::Budget;
use crate::ledger::{Category, Charges};

/// What one backend holds now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryReport {
    /// Name of the backend.
    pub backend: String,
    /// What it may be charged.
    pub budget: Budget,
    /// Registered weights (rule A6).
    pub weights_bytes: Bytes,
    /// The part of [`weights_bytes`](Self::weights_bytes) that is pages of a file.
    pub mapped_bytes: Bytes,
    /// Keys and values.
    pub kv_bytes: Bytes,
    /// What the pool holds, live or idle, staging included: grows only when a buffer is created.
    pub pool_bytes: Bytes,
    /// The part of [`pool_bytes`](Self::pool_bytes) that is staging.
    pub staging_bytes: Bytes,
    /// Working memory of kernels.
    pub scratch_bytes: Bytes,
    /// Copies on the host between backends.
    pub host_bytes: Bytes,
    /// Pool bytes that the mapped graph holds now.
    pub live_bytes: Bytes,
    /// The most that [`live_bytes`](Self::live_bytes) ever was.
    pub peak_live_bytes: Bytes,
    /// Pool buffers that hold nothing now.
    pub idle_slots: usize,
    /// Pool buffers by class, smallest class first: class and number.
    pub reserved_classes: Vec<(Bytes, usize)>,
}

impl MemoryReport {
    /// Whether what the backend says it holds is what it was charged, to the byte (rule B4).
    pub fn agrees_with(&self, charged: &Charges) -> bool {
        let of = |category| charged.get(category);
        let pool = of(Category::Pool).saturating_add(of(Category::Staging));
        [self.weights_bytes, self.kv_bytes, self.pool_bytes, self.scratch_bytes]
            == [charged.weights(), of(Category::Kv), pool, of(Category::Scratch)]
    }

    /// Everything that is charged; saturates.
    pub fn total_bytes(&self) -> Bytes {
        [self.weights_bytes, self.kv_bytes, self.pool_bytes, self.scratch_bytes, self.host_bytes]
            .into_iter()
            .sum()
    }

    /// What the system can't take back: everything but mapped weights.
    pub fn anonymous_bytes(&self) -> Bytes {
        self.total_bytes().saturating_sub(self.mapped_bytes)
    }

    /// What the budget leaves; `None` without a budget.
    pub fn headroom_bytes(&self) -> Option<Bytes> {
        self.budget.headroom(self.total_bytes(), self.mapped_bytes)
    }
}
