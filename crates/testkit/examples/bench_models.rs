//! Writes the models that speed is measured on: `bench_models SMOLLM2.gguf FOLDER`.
//!
//! SmolLM2 re-encoded, and a llama of a billion random weights with SmolLM2's vocabulary: 16 blocks of 2048 and 8192, 32
//! heads and 8 KV heads. Types go where the usual recipes put them: an output that is also the embedding is Q6_K beside
//! four-bit blocks, and in `q4_k_m` half of the blocks have Q6_K values and FFN outputs.
// Its output is what it is for.
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::thread;

use minfer_gguf::{Index, Mapping, Writer};
use minfer_tensor::{Bytes, DType, Shape, decode_row, encode_row};
use minfer_testkit::rng::Rng;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const BLOCKS: usize = 16;
const EMBD: usize = 2048;
const FF: usize = 8192;
const HEADS: usize = 32;
const HEADS_KV: usize = 8;

fn main() -> Result<()> {
    let [_, smollm2, folder] = &std::env::args().collect::<Vec<_>>()[..] else {
        return Err("usage: bench_models SMOLLM2.gguf FOLDER".into());
    };
    let (index, folder) = (Index::open(smollm2)?, Path::new(folder));
    std::fs::create_dir_all(folder)?;
    for (name, dtype) in [("q4_0", DType::Q4_0), ("q8_0", DType::Q8_0)] {
        written(&folder.join(format!("smollm2-135m-{name}.gguf")), || reencoded(&index, dtype))?;
    }
    for recipe in [Recipe::Q4_0, Recipe::Q8_0, Recipe::Q4KM] {
        written(&folder.join(format!("llama-1b-{}.gguf", recipe.name())), || random(&index, recipe))?;
    }
    Ok(())
}

/// Writes a file that isn't there yet, and prints its path.
fn written(path: &Path, model: impl FnOnce() -> Result<Writer<'static>>) -> Result<()> {
    if !path.exists() {
        let part = path.with_extension("part");
        model()?.write_to(BufWriter::new(File::create(&part)?))?;
        std::fs::rename(part, path)?;
    }
    println!("{}", path.display());
    Ok(())
}

/// The model with the matrices of its blocks in another type.
fn reencoded(index: &Index, dtype: DType) -> Result<Writer<'static>> {
    let maps = index.parts().iter().map(Mapping::open).collect::<std::result::Result<Vec<_>, _>>()?;
    let mut writer = Writer::new();
    for (key, value) in index.metadata().iter() {
        writer = writer.kv(key, value);
    }
    for tensor in index.tensors() {
        let end = tensor.offset + tensor.nbytes().get();
        let bytes = maps[tensor.part].bytes(tensor.offset..end).ok_or("a tensor outside its file")?;
        let to =
            if tensor.name.starts_with("blk.") && tensor.dtype.is_quantized() { dtype } else { tensor.dtype };
        let data = if to == tensor.dtype {
            bytes.to_vec()
        } else {
            let mut values = vec![0.0; tensor.shape.n_elements()];
            decode_row(tensor.dtype, bytes, &mut values)?;
            encoded(to, &values)?
        };
        writer = writer.tensor(tensor.name.clone(), to, tensor.shape, data);
    }
    Ok(writer)
}

#[derive(Clone, Copy)]
enum Recipe {
    Q4_0,
    Q8_0,
    Q4KM,
}

impl Recipe {
    fn name(self) -> &'static str {
        match self {
            Self::Q4_0 => "q4_0",
            Self::Q8_0 => "q8_0",
            Self::Q4KM => "q4_k_m",
        }
    }

    /// The `general.file_type` of the recipe.
    fn file_type(self) -> u32 {
        match self {
            Self::Q4_0 => 2,
            Self::Q8_0 => 7,
            Self::Q4KM => 15,
        }
    }

    /// Of the embedding, which is the output too.
    fn embedding(self) -> DType {
        match self {
            Self::Q4_0 | Self::Q4KM => DType::Q6K,
            Self::Q8_0 => DType::Q8_0,
        }
    }

    /// Of a matrix of a block.
    fn block(self, block: usize, matrix: &str) -> DType {
        let eighth = BLOCKS / 8;
        let more = block < eighth || block >= 7 * eighth || (block - eighth) % 3 == 2;
        match self {
            Self::Q4_0 => DType::Q4_0,
            Self::Q8_0 => DType::Q8_0,
            Self::Q4KM if more && matches!(matrix, "attn_v" | "ffn_down") => DType::Q6K,
            Self::Q4KM => DType::Q4K,
        }
    }
}

/// A llama with seeded random weights, of a size at which activations neither grow nor vanish.
fn random(vocabulary: &Index, recipe: Recipe) -> Result<Writer<'static>> {
    let text = |name: &str| name.starts_with("tokenizer.");
    let tokens = vocabulary.tensor("token_embd.weight").ok_or("no token_embd.weight")?.shape.n_rows();
    let mut writer = Writer::new()
        .kv("general.architecture", "llama")
        .kv("general.name", format!("random llama 1B {}", recipe.name()))
        .kv("general.file_type", recipe.file_type())
        .kv("general.quantization_version", 2u32)
        .kv("llama.block_count", BLOCKS as u32)
        .kv("llama.context_length", 8192u32)
        .kv("llama.embedding_length", EMBD as u32)
        .kv("llama.feed_forward_length", FF as u32)
        .kv("llama.attention.head_count", HEADS as u32)
        .kv("llama.attention.head_count_kv", HEADS_KV as u32)
        .kv("llama.attention.layer_norm_rms_epsilon", 1e-5f32)
        .kv("llama.rope.freq_base", 500_000.0f32)
        .kv("llama.rope.dimension_count", (EMBD / HEADS) as u32)
        .kv("llama.vocab_size", tokens as u32);
    for (key, value) in vocabulary.metadata().iter().filter(|(key, _)| text(key)) {
        writer = writer.kv(key, value);
    }
    let mut seed = 0;
    let mut matrix = |writer: Writer<'static>, name: String, dtype, rows, cols| -> Result<Writer<'static>> {
        seed += 1;
        let data = random_rows(dtype, rows, cols, seed)?;
        Ok(writer.tensor(name, dtype, Shape::new(&[cols, rows])?, data))
    };
    let embd = Shape::new(&[EMBD])?;
    let norm = |writer: Writer<'static>, name: String| {
        writer.tensor(name, DType::F32, embd, 1f32.to_le_bytes().repeat(EMBD))
    };
    writer = matrix(writer, "token_embd.weight".to_owned(), recipe.embedding(), tokens, EMBD)?;
    writer = norm(writer, "output_norm.weight".to_owned());
    let kv = EMBD / HEADS * HEADS_KV;
    let matrices = [
        ("attn_q", EMBD, EMBD),
        ("attn_k", kv, EMBD),
        ("attn_v", kv, EMBD),
        ("attn_output", EMBD, EMBD),
        ("ffn_gate", FF, EMBD),
        ("ffn_up", FF, EMBD),
        ("ffn_down", EMBD, FF),
    ];
    for block in 0..BLOCKS {
        for (name, rows, cols) in matrices {
            let dtype = recipe.block(block, name);
            writer = matrix(writer, format!("blk.{block}.{name}.weight"), dtype, rows, cols)?;
        }
        for name in ["attn_norm", "ffn_norm"] {
            writer = norm(writer, format!("blk.{block}.{name}.weight"));
        }
    }
    Ok(writer)
}

/// Rows of normal numbers whose products with a vector keep its size, encoded on all threads.
fn random_rows(dtype: DType, rows: usize, cols: usize, seed: u64) -> Result<Vec<u8>> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let row_bytes = dtype.row_bytes(cols).and_then(Bytes::to_usize).ok_or("a row of a part of a block")?;
    let mut data = vec![0; rows * row_bytes];
    let share = rows.div_ceil(threads);
    thread::scope(|scope| -> Result<()> {
        let parts = data.chunks_mut(share * row_bytes).enumerate().map(|(part, out)| {
            scope.spawn(move || -> Result<()> {
                let mut rng = Rng::new(seed << 32 | part as u64);
                for row in out.chunks_mut(row_bytes) {
                    encode_row(dtype, &rng.normals(cols, (cols as f32).sqrt().recip()), row)?;
                }
                Ok(())
            })
        });
        let parts: Vec<_> = parts.collect();
        parts.into_iter().try_for_each(|part| part.join().map_err(|_| "an encoder panicked")?)
    })?;
    Ok(data)
}

fn encoded(dtype: DType, values: &[f32]) -> Result<Vec<u8>> {
    let len = dtype.row_bytes(values.len()).and_then(Bytes::to_usize).ok_or("a row of a part of a block")?;
    let mut out = vec![0; len];
    encode_row(dtype, values, &mut out)?;
    Ok(out)
}
