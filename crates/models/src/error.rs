//! What can be wrong with a model file that is well-formed GGUF.

use minfer_graph::GraphError;
use minfer_tensor::DType;
use thiserror::Error;

/// A model that can't be run: its metadata or its tensors don't describe one, or describe one that isn't supported.
/// Text that comes from the file is escaped.
#[derive(Debug, Error)]
pub enum ModelError {
    /// A key is missing or its value makes no sense.
    #[error(transparent)]
    Gguf(#[from] minfer_gguf::Error),
    /// No family of this name.
    #[error("general.architecture is {found}, which is not supported; known are {known}")]
    UnknownArchitecture {
        /// What the file says, quoted.
        found: String,
        /// All families.
        known: String,
    },
    /// A key asks for something that isn't built.
    #[error("{key} is {found}: {what} are not supported")]
    Unsupported {
        /// The key.
        key: String,
        /// Its value.
        found: String,
        /// What it asks for, in the plural.
        what: &'static str,
    },
    /// A tensor that the model needs is missing.
    #[error("tensor {name} is missing; expected {expected}")]
    MissingTensor {
        /// Its name.
        name: String,
        /// Its dimensions, row length first.
        expected: String,
    },
    /// A tensor has other dimensions than the metadata says.
    #[error("tensor {name} is {found}; the metadata wants {expected}")]
    TensorShape {
        /// Its name.
        name: String,
        /// Its dimensions, row length first.
        found: String,
        /// Those that fit.
        expected: String,
    },
    /// A tensor has an element type that its role doesn't allow.
    #[error("tensor {name} has elements of type {found}; expected {expected}")]
    TensorType {
        /// Its name.
        name: String,
        /// Its type.
        found: DType,
        /// The types that are allowed.
        expected: &'static str,
    },
    /// Keys and values can't be stored in this type.
    #[error("a KV cache of {n_ctx} x {row} elements cannot be stored as {dtype}; expected {expected}")]
    Kv {
        /// Positions.
        n_ctx: usize,
        /// Elements of a row: key heads times head size.
        row: usize,
        /// The type asked for.
        dtype: DType,
        /// What can.
        expected: &'static str,
    },
    /// A head isn't whole blocks of the type that keys and values are to be stored in.
    #[error(
        "a {architecture} model with heads of {head_dim} elements ({architecture}.attention.key_length, or \
         embedding_length over attention.head_count) can't keep keys and values as {dtype}, in blocks of {block_len}; \
         use f16 or f32"
    )]
    KvHead {
        /// The architecture.
        architecture: &'static str,
        /// Elements of a head.
        head_dim: usize,
        /// The type asked for.
        dtype: DType,
        /// Elements of its blocks.
        block_len: usize,
    },
    /// The graph of the model doesn't hold together.
    #[error(transparent)]
    Graph(#[from] GraphError),
}
