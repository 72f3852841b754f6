//! Kernels with all that they need to run, on numbers that are the same each time.

use minfer_backend_cpu::kernels::{
    Attention, KEY_BLOCK, MatMul, ROW_UNIT, Share, attention_scratch_bytes, matmul_scratch_bytes, pack,
    quantized_bytes,
};
use minfer_backend_cpu::{AlignedBuf, ByteCounter, Kernels};
use minfer_tensor::{Bytes, DType, encode_row};
use std::iter;

/// Query heads, key-value heads and the size of a head, as in SmolLM2.
const HEADS: usize = 9;
const KV_HEADS: usize = 3;
const HEAD_DIM: usize = 64;

/// A kernel that is ready to run, and what a run of it comes to.
pub(crate) struct Work {
    /// Runs it once.
    pub(crate) run: Box<dyn FnMut()>,
    /// Multiply-adds; numbers, where there are none.
    pub(crate) items: usize,
    /// Bytes of weights, of keys and values, or of the input.
    pub(crate) bytes: usize,
}

/// A weight matrix: how it is stored, and how large it is.
#[derive(Clone, Copy)]
pub(crate) struct Weights {
    pub(crate) dtype: DType,
    /// Whether in panels of sixteen rows, or in rows as in a file.
    pub(crate) packed: bool,
    /// A multiple of [`ROW_UNIT`].
    pub(crate) rows: usize,
    /// Elements of a row.
    pub(crate) k: usize,
}

impl Weights {
    /// The same sixteen rows again and again.
    fn bytes(self) -> AlignedBuf {
        let mut panel = encoded(self.dtype, ROW_UNIT, self.k);
        if self.packed {
            let (row_bytes, rows) = (panel.len() / ROW_UNIT, panel);
            panel = vec![0; rows.len()];
            pack(self.dtype, &rows, row_bytes, &mut panel);
        }
        let mut all = buffer(self.rows / ROW_UNIT * panel.len());
        all.as_mut_slice().chunks_mut(panel.len()).for_each(|part| part.copy_from_slice(&panel));
        all
    }
}

/// A product of weights with so many tokens.
pub(crate) fn product(kernels: &'static Kernels, weights: Weights, tokens: usize) -> Work {
    let Weights { dtype, packed, rows, k } = weights;
    let matrix = weights.bytes();
    let mut x = aligned(&encoded(DType::F32, tokens, k));
    if dtype.is_quantized() {
        let mut acts = buffer(quantized_bytes(tokens, k));
        // SAFETY: both buffers have room for all tokens, and nobody else has them.
        unsafe { kernels.quantize(x.as_ptr().cast(), tokens, k, 0..tokens, acts.as_mut_ptr()) };
        x = acts;
    }
    let mut out = buffer(tokens * rows * size_of::<f32>());
    let mut scratch = buffer(matmul_scratch_bytes(dtype, tokens, k));
    let bytes = matrix.len();
    let run = move || {
        let m = MatMul {
            dtype,
            weights: matrix.as_ptr(),
            packed: packed.then_some(0),
            k,
            rows: Share::Rows(0..rows),
            tokens,
            x: x.as_ptr(),
            out: out.as_mut_ptr().cast(),
            stride: rows,
            scratch: scratch.as_mut_ptr(),
        };
        // SAFETY: the buffers have the declared sizes, and nobody else has them.
        unsafe { kernels.matmul(m) };
    };
    Work { run: Box::new(run), items: rows * k * tokens, bytes }
}

/// Activations of so many tokens of `k` numbers are quantized.
pub(crate) fn quantize(kernels: &'static Kernels, tokens: usize, k: usize) -> Work {
    let x = aligned(&encoded(DType::F32, tokens, k));
    let mut out = buffer(quantized_bytes(tokens, k));
    let bytes = x.len();
    let run = move || {
        // SAFETY: both buffers have room for all tokens, and nobody else has them.
        unsafe { kernels.quantize(x.as_ptr().cast(), tokens, k, 0..tokens, out.as_mut_ptr()) };
    };
    Work { run: Box::new(run), items: tokens * k, bytes }
}

/// So many rows of `k` numbers are normalised.
pub(crate) fn rms_norm(kernels: &'static Kernels, rows: usize, k: usize) -> Work {
    let (x, weight) = (floats(rows * k), floats(k));
    let mut out = vec![0.0; rows * k];
    let run = move || kernels.rms_norm(&mut out, &x, k, Some(&weight), 1e-5);
    Work { run: Box::new(run), items: rows * k, bytes: rows * k * size_of::<f32>() }
}

/// One token looks at so many positions, chunk by chunk.
pub(crate) fn decode(kernels: &'static Kernels, kv_type: DType, positions: usize) -> Work {
    let mut cache = Cache::new(kv_type, 1, positions);
    let (items, bytes) = (cache.macs(), cache.bytes());
    let last = cache.positions[0];
    let n_partials = positions * HEADS / KV_HEADS * cache.attention().partial_len();
    let mut partials = buffer(n_partials * size_of::<f32>());
    let run = move || {
        let (a, partials) = (cache.attention(), partials.as_mut_ptr().cast::<f32>());
        let scratch = cache.scratch.as_mut_ptr().cast();
        for kv_head in 0..KV_HEADS {
            let chunks = a.chunks(last);
            // SAFETY: the cache has room for all positions, `partials` for more chunks than there are, and nobody else
            // has them.
            unsafe {
                kernels.attend_chunks(&a, kv_type, kv_head, 0, chunks.clone(), partials, scratch);
                kernels.merge_chunks(&a, kv_head, 0, chunks, partials, scratch);
            }
        }
    };
    Work { run: Box::new(run), items, bytes }
}

/// So many tokens, the last ones of `positions`, look at what is before them.
pub(crate) fn prefill(kernels: &'static Kernels, kv_type: DType, tokens: usize, positions: usize) -> Work {
    let mut cache = Cache::new(kv_type, tokens, positions);
    let (items, bytes) = (cache.macs(), cache.bytes());
    let run = move || {
        let (a, scratch) = (cache.attention(), cache.scratch.as_mut_ptr().cast());
        for kv_head in 0..KV_HEADS {
            // SAFETY: the cache has room for all positions, and nobody else has it.
            unsafe { kernels.attend(&a, kv_type, kv_head, 0..tokens, scratch) };
        }
    };
    Work { run: Box::new(run), items, bytes }
}

/// What attention works on.
struct Cache {
    q: AlignedBuf,
    k: AlignedBuf,
    /// Blocks of keys that lie transposed, as in a cache.
    key_blocks: usize,
    v: AlignedBuf,
    out: AlignedBuf,
    scratch: AlignedBuf,
    /// Of each token.
    positions: Vec<i32>,
}

impl Cache {
    /// Keys and values of so many positions, and queries at the last ones.
    fn new(kv_type: DType, tokens: usize, positions: usize) -> Self {
        let q = aligned(&encoded(DType::F32, tokens, HEADS * HEAD_DIM));
        let kv = encoded(kv_type, positions, KV_HEADS * HEAD_DIM);
        let mut cache = Self {
            out: buffer(q.len()),
            q,
            k: aligned(&kv),
            key_blocks: if kv_type == DType::Q8_0 { 0 } else { positions / KEY_BLOCK },
            v: aligned(&kv),
            scratch: buffer(0),
            positions: (positions - tokens..positions).map(|position| position as i32).collect(),
        };
        cache.scratch = buffer(attention_scratch_bytes(&cache.attention()));
        cache
    }

    fn attention(&mut self) -> Attention {
        Attention {
            q: self.q.as_ptr().cast(),
            k: self.k.as_ptr(),
            key_blocks: self.key_blocks,
            v: self.v.as_ptr(),
            out: self.out.as_mut_ptr().cast(),
            positions: self.positions.as_ptr(),
            heads: HEADS,
            kv_heads: KV_HEADS,
            head_dim: HEAD_DIM,
            scale: 0.125,
            window: usize::MAX,
            softcap: None,
        }
    }

    /// Of scores and of values, for all that the tokens see.
    fn macs(&self) -> usize {
        let seen = self.positions.iter().map(|&position| position as usize + 1).sum::<usize>();
        seen * HEADS * HEAD_DIM * 2
    }

    fn bytes(&self) -> usize {
        self.k.len() + self.v.len()
    }
}

/// Rows of random numbers, as they are stored.
fn encoded(dtype: DType, rows: usize, k: usize) -> Vec<u8> {
    let row_bytes = dtype.row_bytes(k).and_then(Bytes::to_usize).expect("rows are whole blocks");
    let mut bytes = vec![0; rows * row_bytes];
    for (row, numbers) in bytes.chunks_mut(row_bytes).zip(floats(rows * k).chunks(k)) {
        encode_row(dtype, numbers, row).expect("the row has the bytes of its numbers");
    }
    bytes
}

/// Random numbers between -1 and 1: a xorshift that begins the same each time.
fn floats(n: usize) -> Vec<f32> {
    let next = |state: &u64| {
        let state = state ^ (state << 13);
        let state = state ^ (state >> 7);
        Some(state ^ (state << 17))
    };
    let states = iter::successors(Some(0x9e37_79b9_7f4a_7c15), next);
    states.take(n).map(|state| (state >> 40) as f32 / (1 << 23) as f32 - 1.0).collect()
}

fn aligned(bytes: &[u8]) -> AlignedBuf {
    let mut copy = buffer(bytes.len());
    copy.as_mut_slice().copy_from_slice(bytes);
    copy
}

fn buffer(bytes: usize) -> AlignedBuf {
    AlignedBuf::zeroed(bytes, &ByteCounter::default()).expect("the machine has memory for a benchmark")
}
