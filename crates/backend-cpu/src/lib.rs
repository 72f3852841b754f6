//! The CPU backend: kernels, thread pool, buffers, and the executor that runs graph segments on them.

mod backend;
mod buffer;
mod exec;
mod governor;
pub mod kernels;
mod limits;
mod pool;
mod spec;
mod watch;
mod weights;

pub use backend::CpuBackend;
pub use buffer::{AlignedBuf, AllocError, ByteCounter};
pub use kernels::Kernels;
pub use pool::{PoolError, Team, ThreadPool};
pub use spec::CpuSpec;
