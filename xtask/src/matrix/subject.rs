//! The models of the matrix.

use crate::conformance::shared;
use crate::models::{MODELS, minfer};
use crate::shell::output;
use anyhow::{Context, Result};
use serde_json::Value;

/// Tiny models of the checkout, without a tokenizer.
const TINY: &[&str] = &["llama-dense", "qwen2-dense", "qwen3-dense", "gemma3-dense"];
/// Tiny models beside the checkout, with one, and with heads that q8_0 can't hold.
const TINY_TEXT: &[&str] = &["base", "base-spm"];

/// A model, and what the cases depend on.
pub(super) struct Subject {
    /// As the command line takes it.
    pub(super) model: String,
    /// The most positions that it was trained on.
    pub(super) max_ctx: usize,
    /// Elements of a head.
    pub(super) head: usize,
    /// Whether it has a tokenizer.
    pub(super) has_text: bool,
}

impl Subject {
    /// The real models, and the tiny ones that are there.
    pub(super) fn all() -> Result<Vec<Self>> {
        let archs = crate::root().join("crates/testkit/data/archs");
        let tiny = TINY.iter().map(|name| archs.join(name).with_extension("gguf"));
        let beside = shared().join("malformed");
        let tiny_text = TINY_TEXT.iter().map(|name| beside.join(name).with_extension("gguf"));
        let files = tiny.chain(tiny_text).filter(|path| path.is_file());
        let paths = files.map(|path| path.to_string_lossy().into_owned());
        MODELS.iter().map(|model| model.alias.to_owned()).chain(paths).map(Self::inspect).collect()
    }

    fn inspect(model: String) -> Result<Self> {
        let json = output(minfer().args(["inspect", &model, "--json"]))?;
        let metadata = &serde_json::from_slice::<Value>(&json)?["metadata"];
        let arch = metadata["general.architecture"].as_str().context("no architecture")?;
        let number = |key: &str| metadata[format!("{arch}.{key}")].as_u64().map(|n| n as usize);
        let width = || Some(number("embedding_length")? / number("attention.head_count")?);
        Ok(Self {
            max_ctx: number("context_length").context("no context length")?,
            head: number("attention.key_length").or_else(width).context("no size of a head")?,
            has_text: metadata["tokenizer.ggml.model"].as_str().is_some_and(|name| name != "test"),
            model,
        })
    }
}
