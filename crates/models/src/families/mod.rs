//! The families: what sets one architecture apart from another, as data.
//!
//! A family is one file with one [`Family`] value. What all have in common is in [`blocks`](crate::blocks).

mod gemma3;
mod llama;
mod qwen2;
mod qwen3;

use minfer_graph::{Activation, RopeStyle};

use crate::config::Config;

/// Every family, by name.
pub static FAMILIES: [&Family; 4] = [&llama::LLAMA, &qwen2::QWEN2, &qwen3::QWEN3, &gemma3::GEMMA3];

/// What sets an architecture apart.
#[derive(Debug)]
pub struct Family {
    /// Its name in `general.architecture`, and the namespace of its keys.
    pub name: &'static str,
    /// Which elements of a head rotate together.
    pub rope_style: RopeStyle,
    /// Frequency base where the file names none.
    pub rope_base: f32,
    /// The gate of the feed-forward network.
    pub activation: Activation,
    /// Whether the projections to queries, keys and values must have biases. Where they need not, those that a file has
    /// are applied all the same.
    pub qkv_bias: bool,
    /// Whether every head of queries and keys is normalised before it is rotated.
    pub qk_norm: bool,
    /// Whether the results of attention and of the feed-forward network are normalised before they are added.
    pub post_norms: bool,
    /// Whether embeddings are multiplied by the root of their length.
    pub scale_embedding: bool,
    /// Whether the factors `ffn_*.scale` of a file apply.
    pub ffn_scales: bool,
    /// Whether `final_logit_softcapping` applies.
    pub final_softcap: bool,
    /// Which blocks see a window only.
    pub sliding: Option<Sliding>,
    /// Factor on attention scores where the file names none.
    pub attention_scale: fn(&Config) -> f32,
}

/// Blocks that see a window only, where the file has no pattern of its own.
#[derive(Debug)]
pub struct Sliding {
    /// Every so many blocks, the last of them sees everything.
    pub period: usize,
    /// Frequency base of the blocks with a window, where the file names none.
    pub rope_base: f32,
}

/// The family of a name.
pub(crate) fn find(name: &str) -> Option<&'static Family> {
    FAMILIES.into_iter().find(|family| family.name == name)
}

/// All names, for a message: `llama, qwen2, …`.
pub(crate) fn known() -> String {
    FAMILIES.map(|family| family.name).join(", ")
}

/// One over the root of the head size (Vaswani et al. 2017).
fn inverse_root_of_head(config: &Config) -> f32 {
    1.0 / (config.head_dim as f32).sqrt()
}
