//! Grouped-query attention with rotary positions (Ainslie et al. 2023, Su et al. 2021).

use minfer_graph::{AttentionSpec, GraphError, NodeId, RopeSpec, WeightId};

use super::norm::head_norm;
use super::{Build, Kv, Linear};
use crate::config::Config;
use crate::error::ModelError;
use crate::weights::WeightTable;

/// The attention of one block.
#[derive(Clone, Debug)]
pub(crate) struct Attention {
    q: Linear,
    k: Linear,
    v: Linear,
    out: Linear,
    q_norm: Option<WeightId>,
    k_norm: Option<WeightId>,
    eps: f32,
    rope: RopeSpec,
    spec: AttentionSpec,
}

impl Attention {
    /// Finds the weights of block `il`.
    pub(crate) fn declare(
        table: &mut WeightTable<'_>,
        config: &Config,
        il: usize,
    ) -> Result<Self, ModelError> {
        let head_dim = config.head_dim;
        let (n_q, n_kv) = (config.layers[il].n_heads * head_dim, config.kv_row(il));
        let family = config.family;
        let name = |part: &str| format!("blk.{il}.{part}");
        let qkv = if family.qkv_bias { Linear::declare_biased } else { Linear::declare };
        let mut head_norm = |part| family.qk_norm.then(|| table.vector(&name(part), head_dim)).transpose();
        let (q_norm, k_norm) = (head_norm("attn_q_norm.weight")?, head_norm("attn_k_norm.weight")?);
        Ok(Self {
            q: qkv(table, &name("attn_q"), n_q, config.n_embd)?,
            k: qkv(table, &name("attn_k"), n_kv, config.n_embd)?,
            v: qkv(table, &name("attn_v"), n_kv, config.n_embd)?,
            out: Linear::declare(table, &name("attn_output"), config.n_embd, n_q)?,
            q_norm,
            k_norm,
            eps: config.rms_eps,
            rope: config.rope_spec(il),
            spec: config.attention_spec(il),
        })
    }

    /// Writes the keys and values of the rows of `x` `[n, n_embd]`; gives the regions as they are then.
    pub(crate) fn store(
        &self,
        b: &mut Build<'_>,
        x: NodeId,
        kv: &Kv,
    ) -> Result<(NodeId, NodeId), GraphError> {
        let k = self.k.build(b, x)?;
        let k = self.rotated(b, k, self.k_norm, kv)?;
        let v = self.v.build(b, x)?;
        let k = b.graph.write_rows(kv.k, k, kv.positions)?;
        let v = b.graph.write_rows(kv.v, v, kv.positions)?;
        Ok((k, v))
    }

    /// What the rows of `x` see of what is stored: `[n, n_heads * head_dim]`, to be projected by
    /// [`project`](Self::project).
    pub(crate) fn attend(
        &self,
        b: &mut Build<'_>,
        x: NodeId,
        (k, v): (NodeId, NodeId),
        kv: &Kv,
    ) -> Result<NodeId, GraphError> {
        let q = self.q.build(b, x)?;
        let q = self.rotated(b, q, self.q_norm, kv)?;
        b.graph.attention(q, k, v, kv.positions, self.spec)
    }

    /// Heads back to `[n, n_embd]`.
    pub(crate) fn project(&self, b: &mut Build<'_>, heads: NodeId) -> Result<NodeId, GraphError> {
        self.out.build(b, heads)
    }

    fn rotated(
        &self,
        b: &mut Build<'_>,
        x: NodeId,
        norm: Option<WeightId>,
        kv: &Kv,
    ) -> Result<NodeId, GraphError> {
        let x = match norm {
            Some(weight) => head_norm(b, x, weight, self.eps)?,
            None => x,
        };
        b.graph.rope(x, kv.positions, kv.rope_factors, self.rope)
    }
}
