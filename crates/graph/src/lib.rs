//! The compute graph, the memory plan and the allocator.
//!
//! - [`ir`]: what to compute. A [`ComputeGraph`] is a list of typed nodes in execution order.
//! - [`backend`]: what a device must offer. [`Backend`] is the only way to memory and to kernels.

pub mod allocplan;
pub mod backend;
pub mod ir;

pub use allocplan::{Budget, BudgetDecision, DeviceMemory, budget_decision, class_size};
pub use backend::{
    Backend, BackendError, BackendId, BatchCounts, Binding, BufId, BufKind, BufRef, DeviceSpec, Segment,
    SegmentId, WeightBytes, WeightCharge, WeightSource,
};
pub use ir::{
    Activation, AttentionSpec, CNode, ComputeGraph, GraphBuilder, GraphError, InputId, NodeId, Op, RopeSpec,
    RopeStyle, Rows, Shape, StateDecl, StateId, WeightDecl, WeightId,
};
