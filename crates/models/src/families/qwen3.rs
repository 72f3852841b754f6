//! `qwen3`: the dense models of Qwen 3. Yang et al. 2025.

use minfer_graph::{Activation, RopeStyle};

use super::{Family, inverse_root_of_head};

/// Llama with normalised heads of queries and keys, whose size is a key of its own.
pub(super) static QWEN3: Family = Family {
    name: "qwen3",
    rope_style: RopeStyle::Halves,
    rope_base: 10_000.0,
    activation: Activation::Silu,
    qkv_bias: false,
    qk_norm: true,
    post_norms: false,
    scale_embedding: false,
    ffn_scales: true,
    final_softcap: false,
    sliding: None,
    attention_scale: inverse_root_of_head,
};
