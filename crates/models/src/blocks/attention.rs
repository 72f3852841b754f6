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

    /// Writes the keys and values of the rows of `x` `[n, n_embd]`. If `attends`, gives what the rows see of what is
    /// stored then: `[n, n_heads * head_dim]`, to be projected by [`project`](Self::project).
    ///
    /// All products come first: a backend may do them one after the other, and the rest of the work by heads.
    pub(crate) fn build(
        &self,
        b: &mut Build<'_>,
        x: NodeId,
        kv: &Kv,
        attends: bool,
    ) -> Result<Option<NodeId>, GraphError> {
        let q = attends.then(|| self.q.build(b, x)).transpose()?;
        let (k, v) = (self.k.build(b, x)?, self.v.build(b, x)?);
        let q = q.map(|q| self.rotated(b, q, self.q_norm, kv)).transpose()?;
        let k = self.rotated(b, k, self.k_norm, kv)?;
        let k = b.graph.write_rows(kv.k, k, kv.positions)?;
        let v = b.graph.write_rows(kv.v, v, kv.positions)?;
        q.map(|q| b.graph.attention(q, k, v, kv.positions, self.spec)).transpose()
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
