//! The intermediate representation: typed handles, operations, nodes, and the graph that holds them.
//!
//! Every value is a matrix `[rows, cols]`, row-major, `cols` contiguous. A tensor of higher rank folds its outer
//! dimensions into rows (`[n_tokens, n_heads * head_dim]` reshapes to `[n_tokens * n_heads, head_dim]`).

mod builder;
mod error;
mod graph;
mod heads;
mod late;
mod node;
mod op;
mod post_norm;
mod print;
#[cfg(test)]
mod tests;
mod verify;

pub use builder::GraphBuilder;
pub use error::GraphError;
pub use graph::{ComputeGraph, StateDecl, WeightDecl};
pub use heads::Heads;
pub(crate) use node::handle;
pub use node::{CNode, InputId, NodeId, Rows, Shape, StateId, WeightId};
pub use op::{Activation, AttentionSpec, Op, RopeSpec, RopeStyle};
pub use post_norm::PostNorm;
pub use verify::verify;
