//! The compute graph, the memory plan and the allocator.
