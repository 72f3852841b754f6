//! Graphics processors as a backend, through wgpu: Vulkan, Metal or DirectX 12.

mod adapter;
mod backend;
mod bandwidth;
mod buffer;
mod device;
mod error;
mod exec;
mod faults;
mod hal;
mod kernels;
mod pipelines;
mod spec;
mod staging;
mod weights;

pub use adapter::{Adapter, Api, Kind, adapters, choose};
pub use backend::WgpuBackend;
pub use device::{MemoryProvider, OpenOptions};
#[doc(hidden)]
pub use faults::Faults;
