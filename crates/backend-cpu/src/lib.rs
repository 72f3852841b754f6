//! The CPU backend: kernels, thread pool, buffers.

mod buffer;
pub mod kernels;
mod pool;

pub use buffer::{AlignedBuf, AllocError, ByteCounter};
pub use kernels::Kernels;
pub use pool::{PoolError, Team, ThreadPool};
