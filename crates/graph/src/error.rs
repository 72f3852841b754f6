//! What can go wrong between a graph and its result.

use minfer_tensor::{Bytes, DType};
use thiserror::Error;

use crate::backend::{BackendError, BufRef};
use crate::ir::{GraphError, StateId, WeightId};
use crate::ledger::{BudgetExceeded, Category};

/// The result of planning, allocating and running.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a graph can't be planned, placed or run.
#[derive(Debug, Error, PartialEq)]
pub enum Error {
    /// The graph doesn't hold together.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// The budget doesn't hold it.
    #[error(transparent)]
    Budget(#[from] BudgetExceeded),
    /// A buffer that a graph needs and the committed plan doesn't have (rule B2): a fault of the program.
    #[error("{backend}: the committed plan has no further {category:?} buffer of {bytes}")]
    Unplanned {
        /// Backend name.
        backend: String,
        /// What the buffer was for.
        category: Category,
        /// Its size.
        bytes: Bytes,
    },
    /// A buffer beyond what the device can hold in one piece.
    #[error("{backend}: {bytes} for {} in one buffer, the device holds at most {max}", category.name())]
    TooLarge {
        /// Backend name.
        backend: String,
        /// What the buffer is for.
        category: Category,
        /// Its size.
        bytes: Bytes,
        /// The largest that the device has.
        max: Bytes,
    },
    /// A graph for another offload than the one that was planned: the readers of a plan must agree (rules O3 to O5).
    #[error("the graph is for {found} blocks on the device, the plan has {expected}")]
    Offload {
        /// Blocks of the plan.
        expected: u32,
        /// Blocks that were asked for.
        found: u32,
    },
    /// The device failed.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// No backend that the plan allows has a kernel.
    #[error("{backend}: no kernel for {op} on {dtype}")]
    Unsupported {
        /// The last backend that was asked: the CPU.
        backend: String,
        /// Operation.
        op: &'static str,
        /// Element type of the first operand.
        dtype: DType,
    },
    /// A number of bytes that no address holds.
    #[error("{what}: the size in bytes exceeds 64 bits")]
    Size {
        /// What was to be sized.
        what: String,
    },
    /// Data of another length than the place it is for (rule A7).
    #[error("{what}: expected {expected} bytes, found {found}")]
    Length {
        /// Name of the input or output.
        what: String,
        /// Bytes of the place.
        expected: u64,
        /// Bytes of the data.
        found: u64,
    },
    /// A name that the graph has no input of, or an input that was not filled.
    #[error("input \"{}\": {what}", .name.escape_debug())]
    Input {
        /// Name of the input.
        name: String,
        /// What is wrong.
        what: &'static str,
    },
    /// More tokens or outputs than the graph was built for.
    #[error("{what}: {found} do not fit a graph of {rung}")]
    Counts {
        /// Tokens or outputs.
        what: &'static str,
        /// How many there are.
        found: usize,
        /// How many the graph holds.
        rung: usize,
    },
    /// A weight that the plan doesn't know, or that a graph needs and nobody registered.
    #[error("weight {id}: {what}")]
    Weight {
        /// The weight.
        id: WeightId,
        /// What is wrong.
        what: &'static str,
    },
    /// A state that a graph touches and nobody created, or created on another backend.
    #[error("state {id}: not on the backend that runs its nodes")]
    State {
        /// The state.
        id: StateId,
    },
    /// An output that the last run didn't have.
    #[error("output {index}: the last run had {count}")]
    Output {
        /// Which output.
        index: usize,
        /// How many there were.
        count: usize,
    },
}

impl Error {
    pub(crate) fn size(what: impl Into<String>) -> Self {
        Self::Size { what: what.into() }
    }

    /// Refuses data that isn't exactly as long as its window.
    pub(crate) fn check_len(what: impl FnOnce() -> String, window: BufRef, found: usize) -> Result<()> {
        let found = Bytes::from(found);
        if found == window.len {
            return Ok(());
        }
        Err(Self::Length { what: what(), expected: window.len.get(), found: found.get() })
    }
}
