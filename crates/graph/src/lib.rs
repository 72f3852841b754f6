//! The compute graph, the memory plan and the allocator.
//!
//! - [`ir`]: what to compute. A [`ComputeGraph`] is a list of typed nodes in execution order.
//! - [`backend`]: what a device must offer. [`Backend`] is the only way to memory and to kernels.
//! - [`scheduler`]: which backend runs which node. [`offload`] says which blocks the device gets.
//! - [`alloc`]: where every value lies. [`GraphAllocator`] owns the backends; every byte goes through its [`ledger`].
//! - [`plan`]: how many bytes that takes. [`MemoryPlan`] is the allocator's own walk over the graphs of all rungs, on
//!   backends that only count; committed once, it is all that is ever allocated.
//! - [`demand`]: what a run reads and multiplies, counted before it runs.
//! - [`runner`]: runs planned graphs. [`cache`] keeps them, one for each shape of the ladder.

pub mod alloc;
pub mod allocplan;
pub mod backend;
pub mod cache;
mod cancel;
mod counters;
pub mod demand;
mod dry;
mod error;
pub mod ir;
pub mod ledger;
mod liveness;
mod mapping;
pub mod offload;
pub mod plan;
mod report;
pub mod runner;
pub mod scheduler;
mod slots;

pub use alloc::GraphAllocator;
pub use allocplan::{Budget, BudgetDecision, DeviceMemory, budget_decision, class_size};
pub use backend::{
    Backend, BackendError, BackendId, BatchCounts, Binding, BufId, BufKind, BufRef, DeviceSpec, Segment,
    SegmentId, WeightBytes, WeightCharge, WeightSource,
};
pub use cache::{CParams, CacheStats, GraphCache, GraphParams, MAX_CACHED_GRAPHS, Rung, rung_for, rungs};
pub use cancel::CancelFlag;
pub use counters::Counters;
pub use demand::{Demand, Reads};
pub use dry::idle;
pub use error::{Error, Result};
pub use ir::{
    Activation, AttentionSpec, CNode, ComputeGraph, GraphBuilder, GraphError, Heads, InputId, NodeId, Op,
    PostNorm, RopeSpec, RopeStyle, Rows, Shape, StateDecl, StateId, WeightDecl, WeightId,
};
pub use ledger::{BudgetExceeded, Category, Charges, Ledger};
pub use mapping::{Crossing, Mapping};
pub use offload::{
    DeviceOffer, Offload, OffloadError, OffloadPlan, OffloadRequest, block_of, fit_blocks, largest_prefix,
    per_block_bytes, weight_budget,
};
pub use plan::{BackendPlan, MemoryPlan, PlanRequest};
pub use report::MemoryReport;
pub use runner::Runner;
pub use scheduler::{Assignment, BackendScheduler, Span, supported_blocks};
