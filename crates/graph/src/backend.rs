//! What a device offers: memory, weights, kernels. Everything above talks to this trait and to nothing else.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use minfer_tensor::{Bytes, DType};
use thiserror::Error;

use crate::allocplan::DeviceMemory;
use crate::cancel::CancelFlag;
use crate::counters::Counters;
use crate::ir::{CNode, ComputeGraph, NodeId, WeightDecl, WeightId};

crate::ir::handle!(
    /// A backend of a session; the CPU is always the last one.
    BackendId, "backend "
);
crate::ir::handle!(
    /// A buffer of one backend.
    BufId, "buf"
);
crate::ir::handle!(
    /// A run of nodes that a backend has prepared.
    SegmentId, "segment"
);

/// A place for one value: a window of a buffer. The buffer is as long as its size class; the value is as long as `len`
/// (rule A7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BufRef {
    /// Whose buffer.
    pub backend: BackendId,
    /// Which buffer.
    pub id: BufId,
    /// First byte.
    pub offset: Bytes,
    /// Bytes of the value.
    pub len: Bytes,
}

/// Where a node's value lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// In the registered weight.
    Weight(WeightId),
    /// In a buffer.
    Buffer(BufRef),
}

/// The category that a buffer is charged to (rule B1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BufKind {
    /// Activations, inputs and staging.
    Pool,
    /// A persistent region of keys or values.
    Kv,
    /// A backend's working memory during one node.
    Scratch,
}

/// How much of the rung a run really uses: data, not topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchCounts {
    /// Tokens that are there; at most the rung.
    pub tokens: usize,
    /// Rows of logits that are asked for; at most the graph's output rows.
    pub outputs: usize,
}

/// Bytes of a weight on the host, kept alive by their owner (a mapped file, a test's vector).
pub trait WeightSource: Send + Sync {
    /// The bytes of `range`. Panics outside the source.
    fn bytes(&self, range: Range<usize>) -> &[u8];
    /// Whether the bytes are pages of a file (reclaimable) and not anonymous memory.
    fn is_mapped(&self) -> bool;
    /// Hints that `range` isn't needed for now: pages of a file may leave the resident memory.
    fn release(&self, range: Range<usize>) {
        let _ = range;
    }
}

/// A window of a [`WeightSource`].
#[derive(Clone)]
pub struct WeightBytes {
    source: Arc<dyn WeightSource>,
    range: Range<usize>,
}

impl WeightBytes {
    /// The bytes `range` of `source`. Panics outside the source.
    pub fn new(source: Arc<dyn WeightSource>, range: Range<usize>) -> Self {
        let _ = source.bytes(range.clone());
        Self { source, range }
    }

    /// The bytes themselves.
    pub fn as_slice(&self) -> &[u8] {
        self.source.bytes(self.range.clone())
    }

    /// Whether they are pages of a file.
    pub fn is_mapped(&self) -> bool {
        self.source.is_mapped()
    }

    /// Hints that `range` of them isn't needed for now.
    pub fn release(&self, range: Range<usize>) {
        self.source.release(self.range.start + range.start..self.range.start + range.end);
    }
}

/// What a weight costs a backend (rule A6), by who can take the bytes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WeightCharge {
    /// Pages of a file, used in place: the system reclaims them under pressure.
    pub mapped: Bytes,
    /// Memory of the backend: copied, repacked, or owned by the source.
    pub anonymous: Bytes,
}

impl WeightCharge {
    /// Both parts; saturates.
    pub fn total(self) -> Bytes {
        self.mapped.saturating_add(self.anonymous)
    }

    /// The charge of two weights, `None` on overflow.
    pub fn checked_add(self, other: Self) -> Option<Self> {
        let mapped = self.mapped.checked_add(other.mapped)?;
        let anonymous = self.anonymous.checked_add(other.anonymous)?;
        Some(Self { mapped, anonymous })
    }
}

impl fmt::Debug for WeightBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WeightBytes({:?}, mapped: {})", self.range, self.is_mapped())
    }
}

/// Nodes that one backend runs in a row, with the place of every value they touch.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// The graph.
    pub graph: &'a ComputeGraph,
    /// The nodes to compute, in execution order: no leaves, and no views but [`Op::WriteRows`](crate::Op::WriteRows).
    pub nodes: &'a [NodeId],
    /// Where each node of the graph lies, by node index; `None` for a node of another segment that isn't touched here.
    pub bindings: &'a [Option<Binding>],
    /// The working memory of the segment: at least [`DeviceSpec::scratch_bytes`] of its nodes. `None` if they need none.
    pub scratch: Option<BufRef>,
}

/// What a backend can fail with.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum BackendError {
    /// The system or the driver refused memory that the budget had admitted.
    #[error("{backend}: could not allocate {requested} ({reason})")]
    OutOfMemory {
        /// Backend name.
        backend: String,
        /// Bytes asked for.
        requested: Bytes,
        /// The driver's or the system's reason.
        reason: String,
    },
    /// An access outside a buffer, or of another length than the buffer's.
    #[error("{backend}: {buffer}: expected {expected}, found {found}")]
    Window {
        /// Backend name.
        backend: String,
        /// Buffer.
        buffer: BufId,
        /// Bytes that are there.
        expected: Bytes,
        /// Bytes that were asked for.
        found: Bytes,
    },
    /// A weight's bytes don't match its declaration.
    #[error("{backend}: {name}: expected {expected} of weights, found {found}")]
    Weight {
        /// Backend name.
        backend: String,
        /// Name of the weight.
        name: String,
        /// Bytes of the declaration.
        expected: Bytes,
        /// Bytes that were given.
        found: Bytes,
    },
    /// An operation that the backend doesn't have was assigned to it.
    #[error("{backend}: no kernel for {op} on {dtype}")]
    Unsupported {
        /// Backend name.
        backend: String,
        /// Operation.
        op: &'static str,
        /// Element type of the weight or state operand.
        dtype: DType,
    },
    /// The device failed or is lost.
    #[error("{backend}: {what}")]
    Device {
        /// Backend name.
        backend: String,
        /// What happened.
        what: String,
    },
    /// The caller asked for the end before the work was done.
    #[error("the work was cancelled")]
    Cancelled,
}

/// What can be said of a backend without touching its device: all that the planner needs.
pub trait DeviceSpec: Send + Sync {
    /// Short name: `cpu`, `wgpu`, `cuda`.
    fn name(&self) -> &str;

    /// The device in words, for people.
    fn device_name(&self) -> String;

    /// Whether a kernel exists for a node and the element types of its operands.
    fn supports_op(&self, node: &CNode, operands: &[DType]) -> bool;

    /// Working memory that a segment needs at its full rung, whose nodes run one after another and share it: the size
    /// sibling of its kernels.
    fn scratch_bytes(&self, graph: &ComputeGraph, nodes: &[NodeId]) -> Bytes;

    /// Bytes that the backend is charged for a weight: its own, and any repacked copy (rule A6). `mapped` says whether
    /// the source is pages of a file.
    fn weight_bytes(&self, decl: &WeightDecl, mapped: bool) -> WeightCharge;

    /// How many keys of `dtype` lie transposed together, `[cols][key_block]` in the place of as many rows, in a state that
    /// [holds keys](ComputeGraph::holds_keys); rows behind the last whole block stay rows. 1: all are rows.
    fn key_block(&self, dtype: DType) -> usize {
        let _ = dtype;
        1
    }

    /// Memory that the backend takes for itself at the commit, charged as scratch: its own staging, the block that the
    /// driver's interface allocates from.
    fn fixed_bytes(&self) -> Bytes {
        Bytes::ZERO
    }

    /// The largest buffer of values, states or scratch; a plan that needs a larger one is refused. Weights may be larger.
    fn max_buffer_bytes(&self) -> Bytes {
        Bytes::MAX
    }

    /// Buffers of exact length are rounded up to a multiple of this; it divides every size class.
    fn buffer_align(&self) -> Bytes {
        Bytes::new(1)
    }

    /// Whether the device's memory is the host's: then both together must fit the host (rule B5).
    fn is_unified(&self) -> bool {
        false
    }
}

/// A device: memory, weights, kernels. Methods that take memory are called only after the ledger has admitted them.
pub trait Backend: Send {
    /// The description of this device.
    fn spec(&self) -> &Arc<dyn DeviceSpec>;

    /// What the device says of its memory now.
    fn device_memory(&self) -> DeviceMemory;

    /// Bytes of all registered weights: mapped, copied, repacked or fused (rule A6).
    fn weights_bytes(&self) -> Bytes;

    /// Bytes of the buffers of a category that exist, asked from whoever handed them out (rule B4).
    fn buffer_bytes(&self, kind: BufKind) -> Bytes;

    /// Bytes of the pool's buffers: the probe that tests compare the report with (rule A5).
    fn pool_len(&self) -> Bytes {
        self.buffer_bytes(BufKind::Pool)
    }

    /// What the backend has done since it was opened; zeros from one that doesn't count.
    fn counters(&self) -> Counters {
        Counters::default()
    }

    /// Bytes a second of a plain read of `places`, weights whole, by all that the kernels run on: the bound on the speed of
    /// what reads them, measured now. Takes some hundredths of a second and allocates nothing. `None` from a backend that
    /// doesn't measure itself, and for nothing to read.
    fn measure_read(&mut self, places: &[Binding]) -> Result<Option<f64>, BackendError> {
        let _ = places;
        Ok(None)
    }

    /// Multiplications a second, each with its addition, of a loop of products of bytes that does nothing else: the bound
    /// on quantized matrix products, measured now. Otherwise as [`measure_read`](Self::measure_read).
    fn measure_products(&mut self) -> Result<Option<f64>, BackendError> {
        Ok(None)
    }

    /// A number that moves whenever a buffer is created or freed (rule A9).
    fn pool_gen(&self) -> u64;

    /// Takes what the backend needs for itself: exactly [`DeviceSpec::fixed_bytes`], reported as scratch from then on. Called
    /// once, by the commit, before any buffer is created.
    fn commit_fixed(&mut self) -> Result<(), BackendError> {
        Ok(())
    }

    /// Creates a zeroed buffer of exactly `bytes`.
    fn alloc_buffer(&mut self, kind: BufKind, bytes: Bytes) -> Result<BufId, BackendError>;

    /// Frees a buffer. Segments that were prepared with it must be released first.
    fn free_buffer(&mut self, id: BufId);

    /// Fills a whole buffer; `data` is exactly as long as the buffer.
    fn write_host(&mut self, id: BufId, data: &[u8]) -> Result<(), BackendError>;

    /// Fills the start of a window; `data` is at most as long as the window.
    fn write_host_window(&mut self, window: BufRef, data: &[u8]) -> Result<(), BackendError>;

    /// Reads the start of a window; `out` is at most as long as the window.
    fn read_host_window(&self, window: BufRef, out: &mut [u8]) -> Result<(), BackendError>;

    /// Makes a weight available to kernels.
    fn register_weight(
        &mut self,
        id: WeightId,
        decl: &WeightDecl,
        data: WeightBytes,
    ) -> Result<(), BackendError>;

    /// Turns a segment into what [`execute`](Self::execute) runs. All that costs time or memory happens here.
    fn prepare(&mut self, segment: Segment<'_>) -> Result<SegmentId, BackendError>;

    /// Forgets a prepared segment.
    fn release(&mut self, id: SegmentId);

    /// Runs a prepared segment. Allocates no memory of the device, and nothing on the host unless the driver's interface
    /// needs it to record commands. It may return before the device is done; reads of the host wait. A backend that can stop
    /// between two steps does so once `cancel` is set, with [`BackendError::Cancelled`]; what it has written until then is
    /// worth nothing.
    fn execute(
        &mut self,
        id: SegmentId,
        counts: BatchCounts,
        cancel: &CancelFlag,
    ) -> Result<(), BackendError>;
}
