//! The GGUF file format: index, metadata, mapping, writer. Nothing here knows what a model is.
//!
//! [`Index::open`] reads and validates everything before the tensor data and touches no tensor byte;
//! [`Mapping`] gives access to the data; [`Writer`] makes files. Versions 2 and 3, little-endian, split or
//! whole. The layout is that of GGML's `docs/gguf.md`.

mod array;
mod error;
mod index;
mod map;
mod metadata;
mod parse;
mod reader;
mod sigbus;
mod split;
mod tensor;
mod text;
mod value;
mod write;

pub use array::{Array, ByteStrings, Values};
pub use error::{Error, Kind, TensorProblem};
pub use index::{Index, Part};
pub use map::Mapping;
pub use metadata::Metadata;
pub use tensor::GgufTensorInfo;
pub use text::{Text, quote};
pub use value::{Value, ValueType};
pub use write::{OwnedValue, Writer};

/// The first four bytes of every file.
pub const MAGIC: [u8; 4] = *b"GGUF";
/// The alignment of tensor data where `general.alignment` doesn't say another.
pub const DEFAULT_ALIGNMENT: u32 = 32;
/// The key of the architecture's name, which every model has.
pub const KEY_ARCHITECTURE: &str = "general.architecture";
/// The key of the alignment of tensor data.
pub const KEY_ALIGNMENT: &str = "general.alignment";
