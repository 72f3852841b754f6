//! `gemma3`: the text models of Gemma 3. Gemma Team 2025.

use minfer_graph::{Activation, RopeStyle};

use super::{Family, Sliding, inverse_root_of_head};
use crate::config::Config;

/// Norms before and after, a scaled embedding, and a window in five of six blocks. The norm weights of a file already
/// hold the 1 that the paper adds.
pub(super) static GEMMA3: Family = Family {
    name: "gemma3",
    rope_style: RopeStyle::Halves,
    rope_base: 1_000_000.0,
    activation: Activation::GeluTanh,
    qkv_bias: false,
    qk_norm: true,
    post_norms: true,
    scale_embedding: true,
    ffn_scales: false,
    final_softcap: true,
    sliding: Some(Sliding { period: 6, rope_base: 10_000.0 }),
    attention_scale,
};

/// Blocks of the 27B model, whose queries are scaled by the embedding's share of a head and not by the head size.
const BLOCKS_27B: usize = 62;

fn attention_scale(config: &Config) -> f32 {
    match config.layers.as_slice() {
        [first, ..] if config.n_layers() == BLOCKS_27B => {
            1.0 / (config.n_embd as f32 / first.n_heads as f32).sqrt()
        }
        _ => inverse_root_of_head(config),
    }
}
