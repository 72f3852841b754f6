//! Times the kernels of every level that this processor can run, on one thread:
//! `cargo bench -p minfer-backend-cpu [-- FILTER]`, with parts of names such as `attention` or `avx2`.
//!
//! Items are multiply-adds, or numbers where there are none; bytes are those of weights, or of keys and values.
#![allow(unsafe_code, reason = "calls the kernels as a backend does")]

mod work;

use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use minfer_backend_cpu::Kernels;
use minfer_backend_cpu::kernels::ROW_UNIT;
use minfer_tensor::{Bytes, DType};
use std::fmt;
use work::{Weights, Work};

/// Elements of a row.
const K: usize = 2048;
/// Rows whose weights stay in the cache.
const CACHED_ROWS: usize = 512;
/// Bytes of weights that no cache holds.
const STREAMED: usize = 256 << 20;
/// Tokens of a batch, and of one whose attention the scalar kernels come to the end of.
const BATCH: usize = 256;
const SHORT_BATCH: usize = 64;
/// Positions that a decoded token looks at, and the last one of a batch.
const POSITIONS: usize = 4096;
const SHORT_POSITIONS: usize = 2048;
/// Types of keys and values.
const KV_TYPES: &[(&str, DType)] = &[("F16", DType::F16), ("Q8_0", DType::Q8_0)];

fn main() {
    divan::main();
}

/// Weights from the cache: what the instructions of a kernel allow.
#[divan::bench(args = products(&[1, BATCH], |_| CACHED_ROWS), max_time = 0.5)]
fn product_cached(bencher: Bencher<'_, '_>, case: &Case<Product>) {
    let (weights, tokens) = case.of;
    measure(bencher, work::product(case.kernels, weights, tokens));
}

/// Weights from memory: what its bandwidth allows, beside [`read`].
#[divan::bench(args = products(&[1], |row_bytes| STREAMED / row_bytes), max_time = 1)]
fn product_streamed(bencher: Bencher<'_, '_>, case: &Case<Product>) {
    let (weights, tokens) = case.of;
    measure(bencher, work::product(case.kernels, weights, tokens));
}

/// Nothing but a read of as many bytes.
#[divan::bench(max_time = 1)]
fn read(bencher: Bencher<'_, '_>) {
    let words = vec![1u64; STREAMED / size_of::<u64>()];
    let sum = || words.iter().fold(0u64, |sum, word| sum.wrapping_add(*word));
    bencher.counter(BytesCount::new(STREAMED)).bench_local(sum);
}

#[divan::bench(args = on_each_level(&[("", ())]), max_time = 0.5)]
fn quantize(bencher: Bencher<'_, '_>, case: &Case<()>) {
    measure(bencher, work::quantize(case.kernels, BATCH, K));
}

#[divan::bench(args = on_each_level(&[("", ())]), max_time = 0.5)]
fn rms_norm(bencher: Bencher<'_, '_>, case: &Case<()>) {
    measure(bencher, work::rms_norm(case.kernels, BATCH, K));
}

/// One token, chunk by chunk.
#[divan::bench(args = on_each_level(KV_TYPES), max_time = 0.5)]
fn attention_decode(bencher: Bencher<'_, '_>, case: &Case<DType>) {
    measure(bencher, work::decode(case.kernels, case.of, POSITIONS));
}

/// A batch of tokens at the end of the context, in which bytes say nothing.
#[divan::bench(args = on_each_level(KV_TYPES), max_time = 0.5)]
fn attention_prefill(bencher: Bencher<'_, '_>, case: &Case<DType>) {
    measure(bencher, work::prefill(case.kernels, case.of, SHORT_BATCH, SHORT_POSITIONS));
}

fn measure(bencher: Bencher<'_, '_>, mut work: Work) {
    let counted = bencher.counter(ItemsCount::new(work.items)).counter(BytesCount::new(work.bytes));
    counted.bench_local(&mut work.run);
}

/// Kernels, and what they run on.
struct Case<T> {
    kernels: &'static Kernels,
    of: T,
    name: String,
}

impl<T> fmt::Display for Case<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name)
    }
}

/// The kernels of all levels, each on all of these.
fn on_each_level<T: Copy>(all: &[(impl AsRef<str>, T)]) -> Vec<Case<T>> {
    let case = |kernels: &'static Kernels, (name, of): &(_, T)| {
        let name = format!("{} {}", kernels.name(), AsRef::<str>::as_ref(name)).trim_end().to_owned();
        Case { kernels, of: *of, name }
    };
    let levels = Kernels::available().iter();
    levels.flat_map(|kernels| all.iter().map(|one| case(kernels, one))).collect()
}

/// Weights, and the number of tokens.
type Product = (Weights, usize);

/// Products of every type, with rows by the bytes of one.
fn products(tokens: &[usize], rows: fn(usize) -> usize) -> Vec<Case<Product>> {
    let mut all = Vec::new();
    for dtype in DType::ALL.into_iter().filter(|&dtype| dtype != DType::I32) {
        let row_bytes = dtype.row_bytes(K).and_then(Bytes::to_usize).expect("rows are whole blocks");
        let rows = rows(row_bytes) / ROW_UNIT * ROW_UNIT;
        for packed in [true, false].into_iter().filter(|packed| !packed || dtype.is_quantized()) {
            for &tokens in tokens {
                let layout = if packed { "packed" } else { "rows" };
                let weights = Weights { dtype, packed, rows, k: K };
                all.push((format!("{dtype} {layout} {tokens}"), (weights, tokens)));
            }
        }
    }
    on_each_level(&all)
}
