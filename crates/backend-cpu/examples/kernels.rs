//! Times the kernels of every table: `cargo run --release -p minfer-backend-cpu --example kernels [threads] [table]`.
//!
//! Prints G multiply-adds/s of products with 256 tokens, GB/s of weights with one token beside a plain read of
//! the same bytes, and attention over 2048 keys.
#![allow(unsafe_code, reason = "calls the kernels as a backend does")]
#![allow(clippy::print_stdout, reason = "prints a report")]

use minfer_backend_cpu::kernels::{
    Attention, KEY_BLOCK, MatMul, ROW_UNIT, attention_scratch_bytes, matmul_scratch_bytes, quantized_bytes,
};
use minfer_backend_cpu::{AlignedBuf, AllocError, ByteCounter, Kernels, ThreadPool};
use minfer_tensor::DType;
use std::error::Error;
use std::time::Instant;

/// A pointer that threads may share.
#[derive(Clone, Copy)]
struct Shared(*mut u8);
// SAFETY: the threads of a job write disjoint parts.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    fn at(self, offset: usize) -> *mut u8 {
        self.0.wrapping_add(offset)
    }
}

/// Best of several runs, in seconds.
fn best(runs: usize, mut job: impl FnMut()) -> f64 {
    let time = |job: &mut dyn FnMut()| {
        let start = Instant::now();
        job();
        start.elapsed().as_secs_f64()
    };
    (0..runs).map(|_| time(&mut job)).fold(f64::INFINITY, f64::min)
}

fn buffer(bytes: usize) -> Result<AlignedBuf, AllocError> {
    AlignedBuf::zeroed(bytes, &ByteCounter::default())
}

/// Seconds of one product on all threads.
fn product(
    pool: &mut ThreadPool,
    table: &Kernels,
    dtype: DType,
    rows: usize,
    k: usize,
    tokens: usize,
    packed: bool,
) -> Result<f64, Box<dyn Error>> {
    let row_bytes = dtype.row_bytes(k).ok_or("row")?.get() as usize;
    let mut weights = buffer(rows * row_bytes)?;
    weights.as_mut_slice().iter_mut().enumerate().for_each(|(i, b)| *b = (i * 37 % 61) as u8);
    let mut x = buffer(tokens * k * 4)?;
    let mut acts = buffer(quantized_bytes(tokens, k))?;
    let (mut out, scratch_bytes) =
        (buffer(tokens * rows * 4)?, matmul_scratch_bytes(dtype, tokens, k).next_multiple_of(4096));
    let mut scratch = buffer(scratch_bytes * pool.count())?;
    let (w, out, scratch) =
        (Shared(weights.as_mut_ptr()), Shared(out.as_mut_ptr()), Shared(scratch.as_mut_ptr()));
    let quantized = dtype.is_quantized();
    let acts = Shared(if quantized { acts.as_mut_ptr() } else { x.as_mut_ptr() });
    if quantized {
        // SAFETY: both buffers have room for all tokens.
        unsafe { table.quantize(x.as_ptr().cast(), tokens, k, 0..tokens, acts.at(0)) };
    }
    let runs = if tokens == 1 { 12 } else { 4 };
    Ok(best(runs, || {
        pool.run(|team| {
            let m = MatMul {
                dtype,
                weights: w.at(0),
                packed: packed.then_some(0),
                k,
                rows: team.share(rows, ROW_UNIT),
                tokens,
                x: acts.at(0),
                out: out.at(0).cast(),
                stride: rows,
                scratch: scratch.at(team.index() * scratch_bytes),
            };
            // SAFETY: the buffers have the declared sizes; each thread has its rows and scratch.
            unsafe { table.matmul(m) };
        });
    }))
}

/// GB/s of a plain read of `bytes`.
fn read(pool: &mut ThreadPool, bytes: usize) -> Result<f64, Box<dyn Error>> {
    let mut memory = buffer(bytes)?;
    memory.as_mut_slice().fill(1);
    let memory = memory.as_slice();
    let seconds = best(12, || {
        pool.run(|team| {
            let mut sums = [0u64; 64];
            for line in memory[team.share(bytes, 512)].as_chunks::<512>().0 {
                for (sum, word) in sums.iter_mut().zip(line.as_chunks::<8>().0) {
                    *sum = sum.wrapping_add(u64::from_le_bytes(*word));
                }
            }
            std::hint::black_box(sums);
        });
    });
    Ok(bytes as f64 / seconds / 1e9)
}

/// Seconds of attention: 8 heads on 2 key-value heads of 64 over `slots` keys.
fn attention(table: &Kernels, tokens: usize, slots: usize) -> Result<f64, Box<dyn Error>> {
    let (heads, kv_heads, head_dim) = (8, 2, 64);
    let q = buffer(tokens * heads * head_dim * 4)?;
    let mut out = buffer(q.len())?;
    let kv = buffer(slots * kv_heads * head_dim * 2)?;
    let positions: Vec<i32> = (0..tokens).map(|t| (slots - tokens + t) as i32).collect();
    let a = Attention {
        q: q.as_ptr().cast(),
        k: kv.as_ptr(),
        key_blocks: slots / KEY_BLOCK,
        v: kv.as_ptr(),
        out: out.as_mut_ptr().cast(),
        positions: positions.as_ptr(),
        heads,
        kv_heads,
        head_dim,
        scale: 0.125,
        window: usize::MAX,
        softcap: None,
    };
    let mut scratch = buffer(attention_scratch_bytes(&a))?;
    Ok(best(8, || {
        for kv_head in 0..kv_heads {
            // SAFETY: the buffers have the declared sizes; positions lie within the keys.
            unsafe { table.attend(&a, DType::F16, kv_head, 0..tokens, scratch.as_mut_ptr().cast()) };
        }
    }))
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let threads = args.next().map_or(Ok(2), |n| n.parse())?;
    let only = args.next();
    let mut pool = ThreadPool::new(threads)?;
    println!("{threads} threads; plain read {:.1} GB/s", read(&mut pool, 256 << 20)?);
    for table in Kernels::available() {
        if only.as_deref().is_some_and(|name| name != table.name()) {
            continue;
        }
        let scalar = table.name() == "scalar";
        for dtype in DType::ALL.into_iter().filter(|&d| d != DType::I32) {
            let (rows, k) = if scalar { (64, 512) } else { (1024, 2048) };
            let tokens = if scalar { 12 } else { 256 };
            let vector_rows = if scalar { 256 } else { 65536 };
            let bytes = vector_rows * dtype.row_bytes(k).ok_or("row")?.get() as usize;
            for packed in [false, true] {
                if packed && !dtype.is_quantized() {
                    continue;
                }
                let gemm = product(&mut pool, table, dtype, rows, k, tokens, packed)?;
                let vector = product(&mut pool, table, dtype, vector_rows, k, 1, packed)?;
                let layout = if packed { "packed" } else { "rows" };
                println!(
                    "{:12} {dtype:6} {layout:6} {tokens} tokens {:7.1} GMAC/s; 1 token {:6.1} GB/s",
                    table.name(),
                    (rows * k * tokens) as f64 / gemm / 1e9,
                    bytes as f64 / vector / 1e9,
                );
            }
        }
        for tokens in [1, 64] {
            let slots = 2048;
            let seconds = attention(table, tokens, slots)?;
            let macs = (8 * 64 * 2 * tokens * slots) as f64;
            println!(
                "{:12} attention {tokens} tokens, 1 thread {:6.1} GMAC/s",
                table.name(),
                macs / seconds / 1e9
            );
        }
    }
    Ok(())
}
