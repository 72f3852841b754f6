//! Hyper-parameters and tensors that describe no model are refused in words that name them.
#![allow(clippy::unwrap_used)]

mod common;

use common::TinyModel;
use minfer_gguf::OwnedValue;
use minfer_tensor::DType;

/// The message that refuses a changed llama model. Fails if it says none of the alternatives of `words` or has control
/// characters.
fn refused(words: &str, change: impl FnOnce(&mut TinyModel)) -> String {
    let mut model = TinyModel::new("llama");
    change(&mut model);
    let message = match model.load() {
        Ok(_) => panic!("accepted, expected a refusal with {words:?}"),
        Err(error) => error.to_string(),
    };
    assert!(message.contains(words), "{message:?} lacks {words:?}");
    assert!(!message.contains(char::is_control), "{message:?}");
    message
}

fn accepted(change: impl FnOnce(&mut TinyModel)) {
    let mut model = TinyModel::new("llama");
    change(&mut model);
    model.load().unwrap();
}

#[test]
fn counts_out_of_bounds_name_their_key() {
    let keys = [
        "block_count",
        "context_length",
        "embedding_length",
        "feed_forward_length",
        "attention.head_count",
        "attention.head_count_kv",
        "attention.key_length",
        "attention.value_length",
        "rope.dimension_count",
    ];
    for key in keys {
        let bad: [OwnedValue; 6] =
            [0u32.into(), (-1i32).into(), 2.5f32.into(), (1u64 << 31).into(), "4".into(), true.into()];
        for value in bad {
            refused(&format!("llama.{key}"), |model| model.set(key, value));
        }
    }
}

#[test]
fn required_keys_are_named_when_missing() {
    let required = [
        "block_count",
        "context_length",
        "embedding_length",
        "feed_forward_length",
        "attention.head_count",
        "attention.layer_norm_rms_epsilon",
    ];
    for key in required {
        refused(&format!("llama.{key}"), |model| model.remove(key));
    }
    refused("general.architecture", |model| model.pairs.retain(|(key, _)| key != "general.architecture"));
}

#[test]
fn floats_are_finite_and_above_zero() {
    for key in
        ["attention.layer_norm_rms_epsilon", "rope.freq_base", "attention.scale", "rope.scaling.factor"]
    {
        for value in [f32::NAN, f32::INFINITY, -1.0] {
            refused(&format!("llama.{key}"), |model| model.set(key, value));
        }
    }
    refused("llama.attention.layer_norm_rms_epsilon", |model| {
        model.set("attention.layer_norm_rms_epsilon", 0.0f32);
    });
    refused("llama.rope.freq_base", |model| model.set("rope.freq_base", 0.0f32));
    accepted(|model| model.set("rope.scaling.factor", 0.0f32));
    accepted(|model| model.set("attention.layer_norm_rms_epsilon", 1e-5f64));
}

#[test]
fn heads_divide_what_they_share() {
    refused("llama.attention.head_count_kv", |model| model.set("attention.head_count_kv", 3u32));
    refused("llama.attention.head_count_kv", |model| model.set("attention.head_count_kv", vec![2u32]));
    refused("llama.attention.head_count_kv", |model| model.set("attention.head_count_kv", vec![2u32, 0]));
    refused("blk.1.attn_k.weight", |model| model.set("attention.head_count_kv", vec![2u32, 4]));
    accepted(|model| model.set("attention.head_count_kv", vec![2u32, 2]));
    refused("llama.attention.head_count", |model| {
        model.remove("attention.key_length");
        model.remove("attention.value_length");
        model.set("attention.head_count", 128u32);
    });
    refused("llama.attention.value_length", |model| model.set("attention.value_length", 8u32));
    refused("blk.0.attn_q.weight", |model| {
        model.set("attention.key_length", 32u32);
        model.set("attention.value_length", 32u32);
    });
}

#[test]
fn rotary_dimensions_are_even_and_within_a_head() {
    refused("llama.rope.dimension_count", |model| model.set("rope.dimension_count", 15u32));
    refused("llama.rope.dimension_count", |model| model.set("rope.dimension_count", 18u32));
    accepted(|model| model.set("rope.dimension_count", 8u32));
    refused("sideways", |model| model.set("rope.scaling.type", "sideways\u{1b}[2J"));
    refused("llama.rope.scaling.type is \"yarn\"", |model| model.set("rope.scaling.type", "yarn"));
}

#[test]
fn more_blocks_than_tensors_are_refused_at_once() {
    refused("blk.2.", |model| model.set("block_count", 3u32));
    refused("llama.block_count", |model| model.set("block_count", 100_000u32));
    refused("llama.block_count", |model| model.set("block_count", i32::MAX as u32));
}

#[test]
fn unknown_architectures_are_escaped_and_known_ones_listed() {
    let set = |name: &'static str| move |model: &mut TinyModel| model.pairs[0].1 = name.into();
    let message = refused("llama, qwen2, qwen3, gemma3", set("mamba"));
    assert!(message.contains("\"mamba\""), "{message}");
    refused("general.architecture", set("\u{1b}]0;owned\u{7}"));
    refused("general.architecture", |model| model.pairs[0].1 = 7u32.into());
}

#[test]
fn features_that_are_not_built_are_refused_by_name() {
    refused("llama.expert_count", |model| model.set("expert_count", 8u32));
    accepted(|model| model.set("expert_count", 0u32));
    refused("llama.attention.causal", |model| model.set("attention.causal", false));
}

#[test]
fn tensors_have_the_dimensions_of_the_configuration() {
    refused("blk.0.attn_q.weight is 64 x 48; the metadata wants 64 x 64", |model| {
        model.add("blk.0.attn_q.weight", DType::F16, &[64, 48]);
    });
    refused("blk.1.attn_q.weight is 4096; the metadata wants 64 x 64", |model| {
        model.add("blk.1.attn_q.weight", DType::F16, &[4096]);
    });
    refused("blk.0.ffn_norm.weight is 63; the metadata wants 64", |model| {
        model.add("blk.0.ffn_norm.weight", DType::F32, &[63]);
    });
    refused("blk.0.ffn_gate.weight", |model| model.set("feed_forward_length", 128u32));
    refused("token_embd.weight", |model| model.set("embedding_length", 128u32));
    refused("rope_freqs.weight", |model| model.add("rope_freqs.weight", DType::F32, &[16]));
    accepted(|model| model.add("blk.0.attn_q.weight", DType::F16, &[64, 64, 1, 1]));
}

#[test]
fn tensors_that_are_needed_are_named_when_missing() {
    for (name, ..) in TinyModel::new("llama").tensors {
        if name != "output.weight" {
            refused(&format!("tensor {name} is missing"), |model| model.remove_tensor(&name));
        }
    }
    for (architecture, name) in [
        ("qwen2", "blk.1.attn_k.bias"),
        ("qwen3", "blk.0.attn_q_norm.weight"),
        ("gemma3", "blk.1.post_ffw_norm.weight"),
    ] {
        let mut model = TinyModel::new(architecture);
        model.remove_tensor(name);
        let message = model.load().unwrap_err().to_string();
        assert!(message.contains(name), "{message}");
    }
}

#[test]
fn norms_and_biases_are_floats() {
    refused("blk.0.attn_norm.weight has elements of type Q8_0; expected F32, F16 or BF16", |model| {
        model.add("blk.0.attn_norm.weight", DType::Q8_0, &[64]);
    });
    accepted(|model| model.add("blk.0.attn_norm.weight", DType::BF16, &[64]));
    accepted(|model| model.add("blk.0.attn_q.weight", DType::Q4_0, &[64, 64]));
}

#[test]
fn every_token_has_a_row() {
    refused("token_embd.weight", |model| {
        let tokens: OwnedValue = (0..39).map(|i| i.to_string()).collect();
        model.pairs.push(("tokenizer.ggml.tokens".to_owned(), tokens));
    });
}

#[test]
fn keys_and_values_are_stored_in_whole_blocks() {
    let model = TinyModel::new("llama").load().unwrap();
    assert_eq!(model.kv_bytes_per_token(DType::F16).unwrap().get(), 2 * 2 * 32 * 2);
    assert_eq!(model.states(128, DType::F32).unwrap().len(), 4);
    for (n_ctx, dtype) in [(128, DType::BF16), (128, DType::I32), (usize::MAX, DType::F16)] {
        let message = model.states(n_ctx, dtype).unwrap_err().to_string();
        assert!(message.contains(&n_ctx.to_string()) && message.contains(dtype.name()), "{message}");
    }
    let message = model.states(128, DType::Q8_0).unwrap_err().to_string();
    for word in ["llama.attention.key_length", "16", "Q8_0", "32"] {
        assert!(message.contains(word), "{message}");
    }
    let mut wide = TinyModel::new("llama");
    let heads = [("head_count", 2u32), ("head_count_kv", 1), ("key_length", 32), ("value_length", 32)];
    heads.into_iter().for_each(|(key, n)| wide.set(&format!("attention.{key}"), n));
    assert_eq!(wide.load().unwrap().kv_bytes_per_token(DType::Q8_0).unwrap().get(), 2 * 2 * 34);
}
