//! One transformer block: attention and feed-forward network on the residual stream, norms before and maybe after.

use minfer_graph::{GraphError, NodeId, WeightId};

use super::attention::Attention;
use super::ffn::Ffn;
use super::{Build, rms_norm};
use crate::config::Config;
use crate::error::ModelError;
use crate::weights::WeightTable;

/// The weights of one block.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    attn_norm: WeightId,
    attention: Attention,
    post_attention_norm: Option<WeightId>,
    ffn_norm: WeightId,
    ffn: Ffn,
    post_ffw_norm: Option<WeightId>,
    eps: f32,
}

/// What a block needs of the graph besides the residual stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kv {
    /// Region of the block's keys.
    pub(crate) k: NodeId,
    /// Region of the block's values.
    pub(crate) v: NodeId,
    /// Position of each row, negative for padding.
    pub(crate) positions: NodeId,
    /// Divisors of the rotary frequencies.
    pub(crate) rope_factors: Option<NodeId>,
}

/// Which rows of the residual stream are needed after a block.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wanted {
    /// All of them: there is another block.
    All,
    /// Those that these ids name: logits are made of them.
    Rows(NodeId),
    /// None: only keys and values are stored.
    Nothing,
}

impl Block {
    /// Finds the weights of block `il`.
    pub(crate) fn declare(
        table: &mut WeightTable<'_>,
        config: &Config,
        il: usize,
    ) -> Result<Self, ModelError> {
        let n = config.n_embd;
        let name = |part: &str| format!("blk.{il}.{part}.weight");
        let post_norm = |table: &mut WeightTable<'_>, part| {
            config.family.post_norms.then(|| table.vector(&name(part), n)).transpose()
        };
        Ok(Self {
            attn_norm: table.vector(&name("attn_norm"), n)?,
            attention: Attention::declare(table, config, il)?,
            post_attention_norm: post_norm(table, "post_attention_norm")?,
            ffn_norm: table.vector(&name("ffn_norm"), n)?,
            ffn: Ffn::declare(table, config, il)?,
            post_ffw_norm: post_norm(table, "post_ffw_norm")?,
            eps: config.rms_eps,
        })
    }

    /// The residual stream `x` `[n, n_embd]` after this block, of the rows that are wanted; `None` if none is.
    pub(crate) fn build(
        &self,
        b: &mut Build<'_>,
        x: NodeId,
        kv: &Kv,
        wanted: Wanted,
    ) -> Result<Option<NodeId>, GraphError> {
        let normed = rms_norm(b, x, self.attn_norm, self.eps)?;
        let attends = !matches!(wanted, Wanted::Nothing);
        let Some(mut heads) = self.attention.build(b, normed, kv, attends)? else { return Ok(None) };
        let mut x = x;
        // From here on each row is on its own, so rows without logits need no more work.
        if let Wanted::Rows(ids) = wanted {
            heads = b.graph.get_rows(heads, ids)?;
            x = b.graph.get_rows(x, ids)?;
        }
        let attended = self.attention.project(b, heads)?;
        let x = self.add(b, x, attended, self.post_attention_norm)?;
        let normed = rms_norm(b, x, self.ffn_norm, self.eps)?;
        let fed = self.ffn.build(b, normed)?;
        self.add(b, x, fed, self.post_ffw_norm).map(Some)
    }

    fn add(
        &self,
        b: &mut Build<'_>,
        x: NodeId,
        delta: NodeId,
        norm: Option<WeightId>,
    ) -> Result<NodeId, GraphError> {
        let delta = match norm {
            Some(weight) => rms_norm(b, delta, weight, self.eps)?,
            None => delta,
        };
        // The sum may take the place of its first operand, and all threads may still read the stream.
        b.graph.add(delta, x)
    }
}
