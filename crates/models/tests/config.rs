//! What the metadata of a family means.
#![allow(clippy::unwrap_used)]

mod common;

use common::{HEAD_DIM, N_EMBD, N_HEADS, TinyModel};
use minfer_graph::DeviceMemory;
use minfer_models::{Config, LayerConfig};
use minfer_tensor::DType;

fn config(architecture: &str, change: impl FnOnce(&mut TinyModel)) -> Config {
    let mut model = TinyModel::new(architecture);
    change(&mut model);
    Config::from_index(&model.index()).unwrap()
}

/// As `config`, with `n` blocks, whose tensors are none of the configuration's business.
fn gemma3_of(n: usize, change: impl FnOnce(&mut TinyModel)) -> Config {
    config("gemma3", |model| {
        for i in 0..n {
            model.add(&format!("padding.{i}"), DType::F32, &[1]);
        }
        model.set("block_count", n as u32);
        model.remove("attention.sliding_window_pattern");
        change(model);
    })
}

fn windows(config: &Config) -> Vec<Option<usize>> {
    config.layers.iter().map(|layer| layer.window).collect()
}

#[test]
fn defaults_follow_from_the_rest() {
    let config = config("llama", |model| {
        model.remove("attention.key_length");
        model.remove("attention.value_length");
        model.remove("attention.head_count_kv");
    });
    assert_eq!((config.head_dim, config.n_rot), (N_EMBD / N_HEADS, N_EMBD / N_HEADS));
    assert_eq!(config.layers[0].n_kv_heads, N_HEADS);
    assert_eq!(config.layers[1].rope_base, 10_000.0);
    assert_eq!(config.attention_scale, 0.25);
    assert_eq!(windows(&config), [None, None]);
}

#[test]
fn the_head_size_is_a_key_of_its_own() {
    let config = config("qwen3", |model| {
        model.set("attention.key_length", 32u32);
        model.set("attention.value_length", 32u32);
        model.set("attention.head_count", 5u32);
        model.set("attention.head_count_kv", 1u32);
    });
    assert_eq!((config.head_dim, config.layers[0].n_heads), (32, 5));
    assert_eq!(config.kv_row(0), 32);
}

#[test]
fn linear_scaling_divides_positions() {
    let scale = |change: fn(&mut TinyModel)| config("llama", change).layers[0].rope_scale;
    assert_eq!(scale(|_| {}), 1.0);
    assert_eq!(scale(|model| model.set("rope.scaling.factor", 4.0f32)), 0.25);
    assert_eq!(scale(|model| model.set("rope.scale_linear", 2.0f32)), 0.5);
    assert_eq!(
        scale(|model| {
            model.set("rope.scaling.type", "none");
            model.set("rope.scaling.factor", 4.0f32);
        }),
        1.0
    );
}

#[test]
fn gemma3_sees_everything_in_every_sixth_block() {
    let config = gemma3_of(13, |model| {
        model.set("rope.freq_base", 1e6f32);
        model.set("rope.scaling.type", "linear");
        model.set("rope.scaling.factor", 8.0f32);
    });
    let global: Vec<usize> = (0..13).filter(|&il| config.layers[il].window.is_none()).collect();
    assert_eq!(global, [5, 11]);
    let LayerConfig { window, rope_base, rope_scale, .. } = config.layers[0];
    assert_eq!((window, rope_base, rope_scale), (Some(8), 10_000.0, 1.0));
    let LayerConfig { window, rope_base, rope_scale, .. } = config.layers[5];
    assert_eq!((window, rope_base, rope_scale), (None, 1e6, 0.125));
}

#[test]
fn a_file_may_have_a_window_pattern_of_its_own() {
    let pattern = |change: fn(&mut TinyModel)| windows(&gemma3_of(4, change));
    let (local, global) = (Some(8), None);
    assert_eq!(
        pattern(|model| model.set("attention.sliding_window_pattern", 2u32)),
        [local, global, local, global]
    );
    assert_eq!(
        pattern(|model| model.set("attention.sliding_window_pattern", vec![0u32, 1, 1, 0])),
        [global, local, local, global]
    );
    assert_eq!(pattern(|model| model.set("attention.sliding_window", 0u32)), [global; 4]);
}

#[test]
fn gemma3_27b_scales_queries_by_the_embedding() {
    let expected = 1.0 / (N_EMBD as f32 / N_HEADS as f32).sqrt();
    let change = |model: &mut TinyModel| {
        model.set("attention.key_length", 64u32);
        model.set("attention.value_length", 64u32);
    };
    assert_eq!(gemma3_of(62, change).attention_scale, expected);
    assert_eq!(gemma3_of(61, change).attention_scale, 0.125);
    let explicit = gemma3_of(62, |model| model.set("attention.scale", 0.5f32));
    assert_eq!(explicit.attention_scale, 0.5);
}

#[test]
fn soft_caps_apply_only_where_the_family_has_them() {
    let cap = |architecture| {
        config(architecture, |model| model.set("final_logit_softcapping", 30.0f32)).final_softcap
    };
    assert_eq!((cap("llama"), cap("gemma3")), (None, Some(30.0)));
}

#[test]
fn heads_may_differ_from_block_to_block() {
    let mut model = TinyModel::new("llama");
    model.set("attention.head_count_kv", vec![2u32, 4]);
    model.add("blk.1.attn_k.weight", DType::F16, &[N_EMBD, 4 * HEAD_DIM]);
    model.add("blk.1.attn_v.weight", DType::F16, &[N_EMBD, 4 * HEAD_DIM]);
    let model = model.load().unwrap();
    let states = model.states(8, DType::F16).unwrap();
    let rows: Vec<usize> = states.iter().map(|state| state.shape.cols).collect();
    assert_eq!(rows, [32, 32, 64, 64]);
    model.build(4, 1, &states).unwrap();
}

#[test]
fn a_tied_head_is_the_embedding_held_once() {
    let mut model = TinyModel::new("llama");
    let own = model.load().unwrap().weights().len();
    model.remove_tensor("output.weight");
    assert_eq!(model.load().unwrap().weights().len(), own - 1);
}

#[test]
fn a2_without_a_device_there_is_no_memory_to_ask_for() {
    assert_eq!(minfer_models::device_memory(None), DeviceMemory::NoDevice);
}
