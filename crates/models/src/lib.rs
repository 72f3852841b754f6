//! Model families: configuration and graphs from GGUF metadata.
//!
//! [`Model::from_index`] checks a file's metadata and tensors against what its [`Family`] needs; [`Model::build`] makes
//! the graph of a batch. No tensor is read here and nothing is allocated by a number that the file has not backed with
//! tensors.

mod blocks;
mod config;
mod device;
mod error;
mod families;
mod keys;
mod model;
mod weights;

pub use config::{Config, LayerConfig};
pub use device::device_memory;
pub use error::ModelError;
pub use families::{FAMILIES, Family, Sliding};
pub use model::{Model, OUT_IDS, POSITIONS, TOKENS};
