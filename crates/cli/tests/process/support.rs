//! Runs the binary, and makes small models to run it on.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use minfer_gguf::{Index, Mapping, OwnedValue, ValueType, Writer};
use minfer_tensor::{DType, Shape, decode_row, encode_row};
use serde_json::Value;

/// What a run of the binary came to.
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Outcome {
    /// The object on standard output; panics unless the run succeeded.
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.code, Some(0), "{}", self.err);
        let object: Value = serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {}", self.out));
        assert_eq!(object["schema_version"], 1);
        object
    }

    /// Panics unless it is an error with this exit code, whose message holds all of `words`.
    pub(crate) fn assert_error(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, Some(code), "{}\n{}", self.out, self.err);
        assert!(self.err.starts_with("error: "), "{}", self.err);
        for word in words {
            assert!(self.err.contains(word), "no {word:?} in {}", self.err);
        }
    }
}

/// The binary with nothing on standard input and none of our variables.
pub(crate) fn minfer(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_minfer"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("MINFER_") && name != "MINFER_CACHE" {
            command.env_remove(name);
        }
    }
    command
        .args(args)
        .env("NO_COLOR", "1")
        // Whatever graphics processor this machine has: what is tested elsewhere is the CPU.
        .env("MINFER_DEVICE", "cpu")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Runs it to its end.
pub(crate) fn run(args: &[&str]) -> Outcome {
    finish(&mut minfer(args))
}

/// Runs it to its end with a text on standard input.
pub(crate) fn run_with_input(args: &[&str], input: &str) -> Outcome {
    let mut child = minfer(args).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    outcome(&child.wait_with_output().unwrap())
}

pub(crate) fn finish(command: &mut Command) -> Outcome {
    outcome(&command.output().unwrap())
}

pub(crate) fn outcome(output: &Output) -> Outcome {
    Outcome {
        code: output.status.code(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// A tiny llama model with random weights and no tokenizer.
pub(crate) fn mute_model() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../testkit/data/archs/llama-dense.gguf")
}

/// The same with a vocabulary of ASCII characters.
pub(crate) fn model() -> &'static str {
    static PATH: OnceLock<String> = OnceLock::new();
    PATH.get_or_init(|| write_model("ascii", &[]))
}

/// The same with a chat template.
pub(crate) fn chat_model() -> &'static str {
    const TEMPLATE: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}\
                            {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
    static PATH: OnceLock<String> = OnceLock::new();
    PATH.get_or_init(|| write_model("chat", &[("tokenizer.chat_template", TEMPLATE.into())]))
}

/// The same with its matrices in all the formats that there are, one after the other.
pub(crate) fn mixed_model() -> &'static str {
    let quantized = DType::ALL.into_iter().filter(|dtype| dtype.is_quantized());
    let formats: Vec<DType> = quantized.chain([DType::F16, DType::BF16]).collect();
    let encode = |nth: usize, shape: Shape, data: &[u8]| {
        let cols = shape.dims()[0];
        let format = formats[nth % formats.len()];
        let format = if cols.is_multiple_of(format.block_len()) { format } else { DType::Q8_0 };
        if shape.dims().len() < 2 {
            return (DType::F32, data.to_vec());
        }
        let mut values = vec![0.0; shape.n_elements()];
        decode_row(DType::F32, data, &mut values).unwrap();
        let mut encoded = vec![0; format.row_bytes(values.len()).unwrap().to_usize().unwrap()];
        encode_row(format, &values, &mut encoded).unwrap();
        (format, encoded)
    };
    static PATH: OnceLock<String> = OnceLock::new();
    PATH.get_or_init(|| write_encoded("mixed", &[], encode))
}

/// Writes the tiny model with a vocabulary and more metadata; returns its path.
pub(crate) fn write_model(name: &str, metadata: &[(&str, OwnedValue)]) -> String {
    write_encoded(name, metadata, |_, _, data| (DType::F32, data.to_vec()))
}

/// The same with each tensor, by its number, encoded anew from f32.
fn write_encoded(
    name: &str,
    metadata: &[(&str, OwnedValue)],
    encode: impl Fn(usize, Shape, &[u8]) -> (DType, Vec<u8>),
) -> String {
    let index = Index::open(mute_model()).unwrap();
    let map = Mapping::open(&index.parts()[0]).unwrap();
    let mut pairs: BTreeMap<String, OwnedValue> =
        index.metadata().iter().map(|(key, value)| (key.to_owned(), value.into())).collect();
    let ours = vocabulary().into_iter().chain(metadata.iter().cloned());
    pairs.extend(ours.map(|(key, value)| (key.to_owned(), value)));
    let mut writer = pairs.into_iter().fold(Writer::new(), |writer, (key, value)| writer.kv(key, value));
    for (nth, tensor) in index.tensors().iter().enumerate() {
        assert_eq!(tensor.dtype, DType::F32);
        let (dtype, data) = encode(nth, tensor.shape, map.bytes(tensor.range()).unwrap());
        writer = writer.tensor(tensor.name.as_str(), dtype, tensor.shape, data);
    }
    let (draft, path) =
        (scratch(&format!("{name}.{}", std::process::id())), scratch(&format!("{name}.gguf")));
    fs::write(&draft, writer.to_bytes()).unwrap();
    fs::rename(&draft, &path).unwrap();
    path.to_str().unwrap().to_owned()
}

/// A file in the build's folder for such.
pub(crate) fn scratch(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// 128 tokens: four special ones, the visible ASCII characters, blank and line break, one merge, and fillers.
fn vocabulary() -> Vec<(&'static str, OwnedValue)> {
    const NORMAL: i32 = 1;
    const CONTROL: i32 = 3;
    const UNUSED: i32 = 5;
    let types = (0..N_VOCAB).map(|i| match i {
        0..4 => CONTROL,
        4..101 => NORMAL,
        _ => UNUSED,
    });
    vec![
        ("tokenizer.ggml.model", "gpt2".into()),
        ("tokenizer.ggml.pre", "gpt-2".into()),
        ("tokenizer.ggml.tokens", strings(tokens())),
        ("tokenizer.ggml.token_type", types.collect::<Vec<i32>>().into()),
        ("tokenizer.ggml.merges", strings(["a b".to_owned()])),
        ("tokenizer.ggml.bos_token_id", 0u32.into()),
        ("tokenizer.ggml.eos_token_id", 1u32.into()),
        ("tokenizer.ggml.add_bos_token", true.into()),
    ]
}

const N_VOCAB: usize = 128;

fn tokens() -> impl Iterator<Item = String> {
    let special = ["<|bos|>", "<|eos|>", "<|im_start|>", "<|im_end|>"].map(String::from);
    let visible = ('!'..='~').chain(['Ġ', 'Ċ']).map(String::from);
    let fillers = (0..).map(|i| format!("<|unused_{i}|>"));
    special.into_iter().chain(visible).chain(["ab".to_owned()]).chain(fillers).take(N_VOCAB)
}

/// The model with a special token of so many bytes, and that token.
pub(crate) fn model_with_a_long_token(len: usize) -> (String, String) {
    let token = format!("<|{}|>", "x".repeat(len - 4));
    let vocabulary = tokens().map(|t| if t == "<|im_start|>" { token.clone() } else { t });
    let model = write_model("long-token", &[("tokenizer.ggml.tokens", strings(vocabulary))]);
    (model, token)
}

/// The vocabulary with a bell instead of each filler.
pub(crate) fn hostile_tokens() -> OwnedValue {
    // Byte 7 in the alphabet of byte-level tokens.
    strings(tokens().enumerate().map(|(i, token)| if i > 100 { format!("ć{i}") } else { token }))
}

fn strings(list: impl IntoIterator<Item = String>) -> OwnedValue {
    OwnedValue::Array(ValueType::String, list.into_iter().map(OwnedValue::from).collect())
}
