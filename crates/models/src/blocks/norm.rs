//! Root mean square norms (Zhang and Sennrich 2019).

use minfer_graph::{GraphError, NodeId, Shape, WeightId};

use super::Build;

/// Every row of `x`, normalised and weighted.
pub(crate) fn rms_norm(
    b: &mut Build<'_>,
    x: NodeId,
    weight: WeightId,
    eps: f32,
) -> Result<NodeId, GraphError> {
    let weight = b.weight(weight)?;
    b.graph.rms_norm(x, weight, eps)
}

/// Every head of `x` `[n, n_heads * head_dim]`, normalised and weighted (`weight` has the elements of a head).
pub(crate) fn head_norm(
    b: &mut Build<'_>,
    x: NodeId,
    weight: WeightId,
    eps: f32,
) -> Result<NodeId, GraphError> {
    let weight = b.weight(weight)?;
    let (whole, head_dim) = (b.graph.node(x).shape, b.graph.node(weight).shape.cols);
    let n_heads = whole.cols / head_dim;
    let heads = b.graph.reshape(x, Shape::new(whole.rows * n_heads, head_dim))?;
    let normed = b.graph.rms_norm(heads, weight, eps)?;
    b.graph.reshape(normed, whole)
}
