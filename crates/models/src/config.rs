//! The hyper-parameters of a model, read from metadata and checked one by one.

use minfer_gguf::{Index, quote};
use minfer_graph::{AttentionSpec, RopeSpec};

use crate::error::ModelError;
use crate::families::{self, Family, Sliding};
use crate::keys::Keys;

type Result<T> = std::result::Result<T, ModelError>;

/// Hyper-parameters of a model of any family. Counts are from 1 to `i32::MAX`, so that the product of two
/// fits 64 bits; floats are finite.
#[derive(Clone, Debug)]
pub struct Config {
    /// The architecture.
    pub family: &'static Family,
    /// Positions that the model was trained for.
    pub n_ctx_train: usize,
    /// Elements of the residual stream.
    pub n_embd: usize,
    /// Tokens of the vocabulary: rows of `token_embd.weight`.
    pub n_vocab: usize,
    /// Elements of a head, of queries, keys and values alike.
    pub head_dim: usize,
    /// Elements of a head that are rotated; even, at most `head_dim`.
    pub n_rot: usize,
    /// Added to the mean of squares in every norm.
    pub rms_eps: f32,
    /// Factor on attention scores.
    pub attention_scale: f32,
    /// `cap * tanh(logit / cap)` on the logits.
    pub final_softcap: Option<f32>,
    /// What differs from block to block; one entry a block, at least one.
    pub layers: Vec<LayerConfig>,
}

/// Hyper-parameters of one block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerConfig {
    /// Query heads.
    pub n_heads: usize,
    /// Key and value heads; divides `n_heads`.
    pub n_kv_heads: usize,
    /// Elements between the projections of the feed-forward network.
    pub n_ff: usize,
    /// Positions that a query sees, itself included; `None` sees all earlier ones.
    pub window: Option<usize>,
    /// Frequency base of the rotary embedding.
    pub rope_base: f32,
    /// Factor on the position before it is rotated by.
    pub rope_scale: f32,
}

impl Config {
    /// Reads the hyper-parameters of `index`.
    ///
    /// # Errors
    /// For an unknown architecture, a missing key, a value without sense, and a feature that isn't supported: each names
    /// the key. Whether the tensors fit is checked by [`Model::from_index`](crate::Model::from_index).
    pub fn from_index(index: &Index) -> Result<Self> {
        let family = family(index)?;
        let keys = Keys::new(index.metadata(), family.name);
        refuse_unsupported(&keys)?;
        let n_layers = n_layers(&keys, index.tensors().len())?;
        let n_embd = keys.required_count("embedding_length")?;
        let layers = layers(&keys, family, n_layers)?;
        let head_dim = head_dim(&keys, n_embd, layers[0].n_heads)?;
        let mut config = Self {
            family,
            n_ctx_train: keys.required_count("context_length")?,
            n_embd,
            n_vocab: n_vocab(index)?,
            head_dim,
            n_rot: n_rot(&keys, head_dim)?,
            rms_eps: keys.required_positive("attention.layer_norm_rms_epsilon")?,
            attention_scale: 1.0,
            final_softcap: None,
            layers,
        };
        if family.final_softcap {
            config.final_softcap = keys.positive_or_off("final_logit_softcapping")?;
        }
        config.attention_scale =
            keys.positive_or_off("attention.scale")?.unwrap_or_else(|| (family.attention_scale)(&config));
        Ok(config)
    }

    /// Number of blocks.
    pub fn n_layers(&self) -> usize {
        self.layers.len()
    }

    /// How block `il` rotates its queries and keys. Panics past the last block.
    pub fn rope_spec(&self, il: usize) -> RopeSpec {
        let LayerConfig { rope_base: base, rope_scale: scale, .. } = self.layers[il];
        RopeSpec { head_dim: self.head_dim, n_rot: self.n_rot, style: self.family.rope_style, base, scale }
    }

    /// How block `il` attends. Panics past the last block.
    pub fn attention_spec(&self, il: usize) -> AttentionSpec {
        let LayerConfig { n_heads, n_kv_heads, window, .. } = self.layers[il];
        let (head_dim, scale) = (self.head_dim, self.attention_scale);
        AttentionSpec { n_heads, n_kv_heads, head_dim, scale, window, softcap: None }
    }

    /// Elements of a row of keys, or of values, of block `il`. Panics past the last block.
    pub fn kv_row(&self, il: usize) -> usize {
        self.layers[il].n_kv_heads * self.head_dim
    }
}

fn family(index: &Index) -> Result<&'static Family> {
    let name = index.metadata().architecture()?;
    families::find(name)
        .ok_or_else(|| ModelError::UnknownArchitecture { found: quote(name), known: families::known() })
}

fn refuse_unsupported(keys: &Keys<'_>) -> Result<()> {
    if let Some(n) = keys.count_or_off("expert_count")? {
        return Err(keys.unsupported("expert_count", n, "experts (blk.0.ffn_gate_exps.weight and its like)"));
    }
    if keys.bool("attention.causal")? == Some(false) {
        return Err(keys.unsupported("attention.causal", false, "models that see later tokens"));
    }
    Ok(())
}

/// A block has at least one tensor, so their number bounds what is allocated for the blocks.
fn n_layers(keys: &Keys<'_>, n_tensors: usize) -> Result<usize> {
    let n = keys.required_count("block_count")?;
    if n > n_tensors {
        let expected = format!("at most as many blocks as the {n_tensors} tensors of the file");
        return Err(keys.error("block_count", &expected, n));
    }
    Ok(n)
}

fn n_vocab(index: &Index) -> Result<usize> {
    let table = index.tensor("token_embd.weight").ok_or_else(|| ModelError::MissingTensor {
        name: "token_embd.weight".to_owned(),
        expected: "embedding_length x tokens".to_owned(),
    })?;
    let rows = table.shape.n_rows();
    match index.metadata().array("tokenizer.ggml.tokens")? {
        Some(tokens) if tokens.len() != rows => Err(ModelError::TensorShape {
            name: table.name.clone(),
            found: table.shape.to_string(),
            expected: format!("a row for each of the {} tokenizer.ggml.tokens", tokens.len()),
        }),
        _ => Ok(rows),
    }
}

fn head_dim(keys: &Keys<'_>, n_embd: usize, n_heads: usize) -> Result<usize> {
    let head_dim = match keys.count("attention.key_length")? {
        Some(length) => length,
        None if n_embd.is_multiple_of(n_heads) => n_embd / n_heads,
        None => {
            let expected = format!("a divisor of embedding_length, which is {n_embd}");
            return Err(keys.error("attention.head_count", &expected, n_heads));
        }
    };
    match keys.count("attention.value_length")? {
        Some(length) if length != head_dim => {
            Err(keys.unsupported("attention.value_length", length, "values of another length than the keys"))
        }
        _ => Ok(head_dim),
    }
}

fn n_rot(keys: &Keys<'_>, head_dim: usize) -> Result<usize> {
    let n_rot = keys.count("rope.dimension_count")?.unwrap_or(head_dim);
    if !n_rot.is_multiple_of(2) || n_rot > head_dim {
        let expected = format!("an even number up to the head size, which is {head_dim}");
        return Err(keys.error("rope.dimension_count", &expected, n_rot));
    }
    Ok(n_rot)
}

fn layers(keys: &Keys<'_>, family: &Family, n_layers: usize) -> Result<Vec<LayerConfig>> {
    let n_heads = keys.required_per_layer("attention.head_count", n_layers)?;
    let n_kv_heads = keys.per_layer("attention.head_count_kv", n_layers)?.unwrap_or_else(|| n_heads.clone());
    let n_ff = keys.required_per_layer("feed_forward_length", n_layers)?;
    let everywhere = LayerConfig {
        n_heads: 0,
        n_kv_heads: 0,
        n_ff: 0,
        window: None,
        rope_base: keys.positive("rope.freq_base")?.unwrap_or(family.rope_base),
        rope_scale: rope_scale(keys)?,
    };
    let local = local(keys, family, everywhere, n_layers)?;
    let layer = |il: usize| {
        if !n_heads[il].is_multiple_of(n_kv_heads[il]) {
            let expected = format!("a divisor of attention.head_count, which is {}", n_heads[il]);
            return Err(keys.error("attention.head_count_kv", &expected, n_kv_heads[il]));
        }
        let base = local.as_ref().filter(|local| local.blocks[il]).map_or(everywhere, |local| local.layer);
        Ok(LayerConfig { n_heads: n_heads[il], n_kv_heads: n_kv_heads[il], n_ff: n_ff[il], ..base })
    };
    (0..n_layers).map(layer).collect()
}

/// Blocks that see a window only.
struct Local {
    /// What they have in common.
    layer: LayerConfig,
    /// Which they are.
    blocks: Vec<bool>,
}

fn local(
    keys: &Keys<'_>,
    family: &Family,
    everywhere: LayerConfig,
    n_layers: usize,
) -> Result<Option<Local>> {
    let Some(Sliding { period, rope_base }) = family.sliding else { return Ok(None) };
    let Some(window) = keys.count_or_off("attention.sliding_window")? else { return Ok(None) };
    let rope_base = keys.positive("rope.freq_base_swa")?.unwrap_or(rope_base);
    let layer = LayerConfig { window: Some(window), rope_base, rope_scale: 1.0, ..everywhere };
    let blocks = keys.window_pattern("attention.sliding_window_pattern", n_layers, period)?;
    Ok(Some(Local { layer, blocks }))
}

/// Factor on positions: linear scaling divides them by the factor by which the context was extended (Chen et al. 2023).
/// A file that names a factor without a type means linear; a factor of 0 means none.
fn rope_scale(keys: &Keys<'_>) -> Result<f32> {
    const TYPE: &str = "rope.scaling.type";
    let factor = match keys.positive_or_off("rope.scaling.factor")? {
        Some(factor) => Some(factor),
        None => keys.positive_or_off("rope.scale_linear")?,
    };
    match keys.str(TYPE)? {
        None | Some("linear") => Ok(factor.map_or(1.0, |factor| 1.0 / factor)),
        Some("none") => Ok(1.0),
        Some(kind @ ("yarn" | "longrope")) => {
            Err(keys.unsupported(TYPE, quote(kind), "scalings other than none and linear"))
        }
        Some(other) => Err(keys.error(TYPE, "none or linear", quote(other))),
    }
}
