//! The CPU backend: kernels, thread pool, buffers.
