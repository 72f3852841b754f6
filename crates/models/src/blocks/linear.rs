//! Projections: a matrix, and what a file may have beside it.

use minfer_graph::{GraphError, NodeId, Shape, WeightId};

use super::Build;
use crate::error::ModelError;
use crate::weights::WeightTable;

/// A projection `NAME.weight` with its `NAME.bias` and its factor `NAME.scale`, where the file has them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Linear {
    pub(crate) weight: WeightId,
    pub(crate) bias: Option<WeightId>,
    pub(crate) scale: Option<WeightId>,
}

impl Linear {
    /// Finds the tensors of a projection from `n_in` to `n_out` elements.
    pub(crate) fn declare(
        table: &mut WeightTable<'_>,
        name: &str,
        n_out: usize,
        n_in: usize,
    ) -> Result<Self, ModelError> {
        Ok(Self {
            weight: table.matrix(&format!("{name}.weight"), n_out, n_in)?,
            bias: table.optional_vector(&format!("{name}.bias"), n_out)?,
            scale: table.optional_vector(&format!("{name}.scale"), 1)?,
        })
    }

    /// As [`declare`](Self::declare), where the bias must be there.
    pub(crate) fn declare_biased(
        table: &mut WeightTable<'_>,
        name: &str,
        n_out: usize,
        n_in: usize,
    ) -> Result<Self, ModelError> {
        let linear = Self::declare(table, name, n_out, n_in)?;
        match linear.bias {
            Some(_) => Ok(linear),
            None => Err(table.missing(&format!("{name}.bias"), n_out, 1)),
        }
    }

    /// `scale * (x · wᵀ) + bias`.
    pub(crate) fn build(&self, b: &mut Build<'_>, x: NodeId) -> Result<NodeId, GraphError> {
        let y = self.product(b, x)?;
        let y = self.scaled(b, y)?;
        self.biased(b, y)
    }

    /// `scale * (x · wᵀ + bias)`: the order of feed-forward networks.
    pub(crate) fn build_bias_first(&self, b: &mut Build<'_>, x: NodeId) -> Result<NodeId, GraphError> {
        let y = self.product(b, x)?;
        let y = self.biased(b, y)?;
        self.scaled(b, y)
    }

    fn product(&self, b: &mut Build<'_>, x: NodeId) -> Result<NodeId, GraphError> {
        let weight = b.weight(self.weight)?;
        b.graph.mat_mul(weight, x)
    }

    fn biased(&self, b: &mut Build<'_>, y: NodeId) -> Result<NodeId, GraphError> {
        let Some(bias) = self.bias else { return Ok(y) };
        let bias = b.weight(bias)?;
        b.graph.add(y, bias)
    }

    /// The factor is a value of the file, not known when the graph is built: it multiplies as a matrix of one element.
    /// Only files whose quantization has a factor for a whole tensor have one.
    fn scaled(&self, b: &mut Build<'_>, y: NodeId) -> Result<NodeId, GraphError> {
        let Some(scale) = self.scale else { return Ok(y) };
        let scale = b.weight(scale)?;
        let whole = b.graph.node(y).shape;
        let elements = b.graph.reshape(y, Shape::new(whole.rows * whole.cols, 1))?;
        let scaled = b.graph.mat_mul(scale, elements)?;
        b.graph.reshape(scaled, whole)
    }
}
