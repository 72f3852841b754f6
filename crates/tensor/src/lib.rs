//! Element types, shapes and block formats of quantized weights.
//!
//! [`quant`] holds one file a format: the layout of its block, and the scalar `decode` and `encode` that
//! every kernel is tested against. Sizes in bytes are [`Bytes`]; counts of elements are `usize`.

mod bytes;
pub mod cast;
mod dtype;
pub mod quant;
mod row;
mod shape;

pub use bytes::Bytes;
pub use dtype::{DType, ggml_type_name, ggml_type_removed};
pub use quant::Block;
pub use row::{RowError, decode_row, encode_row};
pub use shape::{MAX_DIMS, Shape, ShapeError};
