//! `qwen2`: Qwen 2 and 2.5. Yang et al. 2024.

use minfer_graph::{Activation, RopeStyle};

use super::{Family, inverse_root_of_head};

/// Llama with biases on queries, keys and values.
pub(super) static QWEN2: Family = Family {
    name: "qwen2",
    rope_style: RopeStyle::Halves,
    rope_base: 10_000.0,
    activation: Activation::Silu,
    qkv_bias: true,
    qk_norm: false,
    post_norms: false,
    scale_embedding: false,
    ffn_scales: false,
    final_softcap: false,
    sliding: None,
    attention_scale: inverse_root_of_head,
};
