//! Graphics processors as a backend, through wgpu: Vulkan, Metal or DirectX 12.

mod kernels;
