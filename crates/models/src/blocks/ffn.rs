//! The gated feed-forward network (Shazeer 2020).

use minfer_graph::{Activation, GraphError, NodeId};

use super::{Build, Linear};
use crate::config::Config;
use crate::error::ModelError;
use crate::weights::WeightTable;

/// `down(act(gate(x)) * up(x))`.
#[derive(Clone, Debug)]
pub(crate) struct Ffn {
    gate: Linear,
    up: Linear,
    down: Linear,
    activation: Activation,
}

impl Ffn {
    /// Finds the weights of block `il`.
    pub(crate) fn declare(
        table: &mut WeightTable<'_>,
        config: &Config,
        il: usize,
    ) -> Result<Self, ModelError> {
        let (n_embd, n_ff) = (config.n_embd, config.layers[il].n_ff);
        let mut linear = |name: &str, n_out, n_in| {
            let linear = Linear::declare(table, &format!("blk.{il}.{name}"), n_out, n_in)?;
            Ok::<_, ModelError>(if config.family.ffn_scales {
                linear
            } else {
                Linear { scale: None, ..linear }
            })
        };
        Ok(Self {
            gate: linear("ffn_gate", n_ff, n_embd)?,
            up: linear("ffn_up", n_ff, n_embd)?,
            down: linear("ffn_down", n_embd, n_ff)?,
            activation: config.family.activation,
        })
    }

    /// `x` `[n, n_embd]` → `[n, n_embd]`.
    pub(crate) fn build(&self, b: &mut Build<'_>, x: NodeId) -> Result<NodeId, GraphError> {
        let gate = self.gate.build_bias_first(b, x)?;
        let up = self.up.build_bias_first(b, x)?;
        let hidden = b.graph.glu(self.activation, gate, up)?;
        self.down.build_bias_first(b, hidden)
    }
}
