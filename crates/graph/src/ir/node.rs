//! Nodes and the handles that name them.

use std::fmt;

use minfer_tensor::{Bytes, DType};

use super::op::Op;
use crate::backend::BatchCounts;

macro_rules! handle {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u32);

        impl $name {
            /// The handle of position `index`. Panics above `u32::MAX`.
            pub fn new(index: usize) -> Self {
                Self(u32::try_from(index).expect("a handle counts fewer than 2^32 items"))
            }

            /// The position that this handle names.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(self, f)
            }
        }
    };
}
pub(crate) use handle;

handle!(
    /// A node of one [`ComputeGraph`](super::ComputeGraph); nodes are numbered in execution order.
    NodeId, "%"
);
handle!(
    /// A weight of the model; the same number in every graph of that model.
    WeightId, "w"
);
handle!(
    /// A persistent region (the keys or the values of one block); the same number in every graph of a session.
    StateId, "s"
);
handle!(
    /// An input that the host fills before each run, numbered in the order of declaration.
    InputId, "in"
);

/// The extent of a value: `rows` of `cols` contiguous elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Number of rows.
    pub rows: usize,
    /// Elements of a row.
    pub cols: usize,
}

impl Shape {
    /// `[rows, cols]`.
    pub const fn new(rows: usize, cols: usize) -> Self {
        Self { rows, cols }
    }

    /// Elements in all, or `None` beyond `usize`.
    pub fn n_elements(self) -> Option<usize> {
        self.rows.checked_mul(self.cols)
    }

    /// Bytes of a value of this shape, or `None` if a row isn't whole blocks of `dtype` or the product overflows.
    pub fn nbytes(self, dtype: DType) -> Option<Bytes> {
        let row = dtype.row_bytes(self.cols)?;
        Some(Bytes::new(row.get().checked_mul(u64::try_from(self.rows).ok()?)?))
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {}]", self.rows, self.cols)
    }
}

/// What the rows of a value stand for, and so how many of them hold data in a run (rule B2: the rung is topology, the
/// number of tokens is data).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rows {
    /// Every row counts: weights, states.
    Fixed,
    /// This many rows a token of the rung.
    PerToken(usize),
    /// This many rows an output (a row of logits).
    PerOutput(usize),
}

impl Rows {
    /// Rows that hold data when a value of `shape` is computed for `counts`.
    pub fn live(self, shape: Shape, counts: BatchCounts) -> usize {
        match self {
            Rows::Fixed => shape.rows,
            Rows::PerToken(n) => (n * counts.tokens).min(shape.rows),
            Rows::PerOutput(n) => (n * counts.outputs).min(shape.rows),
        }
    }
}

/// One value of the graph and how it comes about.
#[derive(Clone, Debug, PartialEq)]
pub struct CNode {
    /// The operation.
    pub op: Op,
    /// Operands, all of them earlier nodes.
    pub inputs: Vec<NodeId>,
    /// Extent of the result at the full rung.
    pub shape: Shape,
    /// Element type of the result.
    pub dtype: DType,
    /// Which of the rows hold data.
    pub rows: Rows,
    /// The block that the node belongs to; `None` outside any block (embedding, final norm, output head).
    pub layer: Option<u32>,
}

impl CNode {
    /// Bytes of the value. The verifier guarantees that the product exists.
    pub fn nbytes(&self) -> Bytes {
        self.shape.nbytes(self.dtype).unwrap_or(Bytes::ZERO)
    }
}
