//! Tiny models of every family, in memory. Each test file uses a part of it.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use minfer_gguf::{Index, OwnedValue, Writer};
use minfer_models::{Model, ModelError};
use minfer_tensor::{DType, Shape};

pub const N_EMBD: usize = 64;
pub const N_FF: usize = 96;
pub const N_VOCAB: usize = 40;
pub const N_HEADS: usize = 4;
pub const N_KV_HEADS: usize = 2;
pub const HEAD_DIM: usize = 16;

/// A model file in the making: pairs and tensors that a test may change before it is written.
#[derive(Clone)]
pub struct TinyModel {
    pub pairs: Vec<(String, OwnedValue)>,
    pub tensors: Vec<(String, DType, Vec<usize>)>,
}

impl TinyModel {
    /// A valid model of `architecture` with two blocks and a head of its own.
    pub fn new(architecture: &str) -> Self {
        let mut model = Self { pairs: Vec::new(), tensors: Vec::new() };
        model.pairs.push(("general.architecture".to_owned(), architecture.into()));
        let counts = [
            ("block_count", 2),
            ("context_length", 128),
            ("embedding_length", N_EMBD),
            ("feed_forward_length", N_FF),
            ("attention.head_count", N_HEADS),
            ("attention.head_count_kv", N_KV_HEADS),
            ("attention.key_length", HEAD_DIM),
            ("attention.value_length", HEAD_DIM),
        ];
        for (key, n) in counts {
            model.pairs.push((format!("{architecture}.{key}"), (n as u32).into()));
        }
        model.pairs.push((format!("{architecture}.attention.layer_norm_rms_epsilon"), 1e-5f32.into()));
        model.add("token_embd.weight", DType::F16, &[N_EMBD, N_VOCAB]);
        for il in 0..2 {
            model.add_block(architecture, il);
        }
        model.add("output_norm.weight", DType::F32, &[N_EMBD]);
        model.add("output.weight", DType::F16, &[N_EMBD, N_VOCAB]);
        if architecture == "gemma3" {
            model.set("attention.sliding_window", 8u32);
            model.set("attention.sliding_window_pattern", vec![true, false]);
            model.remove_tensor("output.weight");
        }
        model
    }

    fn add_block(&mut self, architecture: &str, il: usize) {
        let (q, kv) = (N_HEADS * HEAD_DIM, N_KV_HEADS * HEAD_DIM);
        let mut add = |part: &str, dtype, dims: &[usize]| self.add(&format!("blk.{il}.{part}"), dtype, dims);
        add("attn_norm.weight", DType::F32, &[N_EMBD]);
        add("attn_q.weight", DType::F16, &[N_EMBD, q]);
        add("attn_k.weight", DType::F16, &[N_EMBD, kv]);
        add("attn_v.weight", DType::F16, &[N_EMBD, kv]);
        add("attn_output.weight", DType::F16, &[q, N_EMBD]);
        add("ffn_norm.weight", DType::F32, &[N_EMBD]);
        add("ffn_gate.weight", DType::F16, &[N_EMBD, N_FF]);
        add("ffn_up.weight", DType::F16, &[N_EMBD, N_FF]);
        add("ffn_down.weight", DType::F16, &[N_FF, N_EMBD]);
        if architecture == "qwen2" {
            add("attn_q.bias", DType::F32, &[q]);
            add("attn_k.bias", DType::F32, &[kv]);
            add("attn_v.bias", DType::F32, &[kv]);
        }
        if matches!(architecture, "qwen3" | "gemma3") {
            add("attn_q_norm.weight", DType::F32, &[HEAD_DIM]);
            add("attn_k_norm.weight", DType::F32, &[HEAD_DIM]);
        }
        if architecture == "gemma3" {
            add("post_attention_norm.weight", DType::F32, &[N_EMBD]);
            add("post_ffw_norm.weight", DType::F32, &[N_EMBD]);
        }
    }

    fn architecture(&self) -> String {
        let architecture = self.pairs.iter().find(|(key, _)| key == "general.architecture");
        match architecture {
            Some((_, OwnedValue::Str(name))) => String::from_utf8(name.clone()).unwrap(),
            other => panic!("no architecture: {other:?}"),
        }
    }

    /// Sets a key of the architecture.
    pub fn set(&mut self, key: &str, value: impl Into<OwnedValue>) {
        self.remove(key);
        self.pairs.push((format!("{}.{key}", self.architecture()), value.into()));
    }

    /// Removes a key of the architecture.
    pub fn remove(&mut self, key: &str) {
        let full = format!("{}.{key}", self.architecture());
        self.pairs.retain(|(key, _)| *key != full);
    }

    /// Adds a tensor, or replaces the one of that name.
    pub fn add(&mut self, name: &str, dtype: DType, dims: &[usize]) {
        self.remove_tensor(name);
        self.tensors.push((name.to_owned(), dtype, dims.to_vec()));
    }

    /// Removes a tensor.
    pub fn remove_tensor(&mut self, name: &str) {
        self.tensors.retain(|(other, ..)| other != name);
    }

    /// The index of the file.
    pub fn index(&self) -> Index {
        let mut writer = Writer::new();
        for (key, value) in &self.pairs {
            writer = writer.kv(key, value.clone());
        }
        for (name, dtype, dims) in &self.tensors {
            let shape = Shape::new(dims).unwrap();
            let len = shape.nbytes(*dtype).unwrap().to_usize().unwrap();
            writer = writer.tensor(name, *dtype, shape, vec![0; len]);
        }
        Index::from_bytes(writer.to_bytes()).unwrap()
    }

    /// The model that the file describes.
    pub fn load(&self) -> Result<Model, ModelError> {
        Model::from_index(&self.index())
    }
}
