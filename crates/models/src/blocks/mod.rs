//! The pieces that families are made of. Each has a `declare` that finds its weights and a `build` that adds its nodes.

mod attention;
mod block;
mod ffn;
mod linear;
mod norm;

use minfer_graph::{GraphBuilder, GraphError, NodeId, WeightDecl, WeightId};

pub(crate) use block::{Block, Kv, Wanted};
pub(crate) use linear::Linear;
pub(crate) use norm::rms_norm;

/// A graph in the making and the weights that it may use.
pub(crate) struct Build<'a> {
    pub(crate) graph: GraphBuilder,
    weights: &'a [WeightDecl],
}

impl<'a> Build<'a> {
    pub(crate) fn new(weights: &'a [WeightDecl]) -> Self {
        Self { graph: GraphBuilder::new(), weights }
    }

    /// The leaf of a weight.
    pub(crate) fn weight(&mut self, id: WeightId) -> Result<NodeId, GraphError> {
        self.graph.weight(id, &self.weights[id.index()])
    }
}
