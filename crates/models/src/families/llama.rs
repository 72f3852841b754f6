//! `llama`: Llama 1 to 3 and what was trained in its image (Mistral 7B, SmolLM2, TinyLlama). Touvron et al. 2023.

use minfer_graph::{Activation, RopeStyle};

use super::{Family, inverse_root_of_head};

/// Files permute the rows of the query and key projections so that rotated elements are neighbours.
pub(super) static LLAMA: Family = Family {
    name: "llama",
    rope_style: RopeStyle::Adjacent,
    rope_base: 10_000.0,
    activation: Activation::Silu,
    qkv_bias: false,
    qk_norm: false,
    post_norms: false,
    scale_embedding: false,
    ffn_scales: true,
    final_softcap: false,
    sliding: None,
    attention_scale: inverse_root_of_head,
};
