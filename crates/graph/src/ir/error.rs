//! What can be wrong with a graph.

use minfer_tensor::DType;
use thiserror::Error;

use super::node::{NodeId, Shape};

/// A graph that can't be built or doesn't hold together. It points at a fault of the program or of the model's metadata,
/// never at memory.
#[derive(Debug, Error, PartialEq)]
pub enum GraphError {
    /// Two operands don't fit each other.
    #[error("{op}: expected an operand of {expected}, found {found}")]
    Shape {
        /// Operation.
        op: &'static str,
        /// What it needs.
        expected: String,
        /// What it was given.
        found: Shape,
    },
    /// An operand has the wrong element type.
    #[error("{op}: expected {expected} elements, found {found}")]
    Dtype {
        /// Operation.
        op: &'static str,
        /// What it needs.
        expected: &'static str,
        /// What it was given.
        found: DType,
    },
    /// A product of dimensions doesn't fit, or a row isn't whole blocks.
    #[error("{op}: a value of {shape} {dtype} elements has no size in bytes")]
    Size {
        /// Operation.
        op: &'static str,
        /// Extent of the result.
        shape: Shape,
        /// Element type of the result.
        dtype: DType,
    },
    /// A parameter of an operation is out of range.
    #[error("{op}: {what}")]
    Parameter {
        /// Operation.
        op: &'static str,
        /// What is wrong with it.
        what: String,
    },
    /// A node breaks an invariant of the graph.
    #[error("{node}: {what}")]
    Invalid {
        /// The node.
        node: NodeId,
        /// Which invariant.
        what: String,
    },
}
