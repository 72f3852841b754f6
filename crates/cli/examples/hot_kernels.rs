//! Runs each hot kernel twice, the second time in a function of its own, for `cargo xtask instructions` to count:
//!
//! `cargo run --release -p minfer --example hot_kernels -- LEVEL [NAME]`
//!
//! It belongs to the program's crate so that the kernels are those of the program, compiled with the same features, and so
//! that nothing has to be compiled again for it.
#![allow(unsafe_code, reason = "a name for the counter, and calls of kernels")]
#![allow(clippy::print_stdout, reason = "prints what was run")]

#[path = "../../backend-cpu/benches/work/mod.rs"]
mod work;

use minfer_backend_cpu::Kernels;
use minfer_tensor::DType;
use work::{Weights, Work};

/// Rows and row length of products: few, since a counted instruction takes fifty times as long.
const ROWS: usize = 64;
const K: usize = 1024;
/// Positions that attention looks at: more than one chunk, the last one not full.
const POSITIONS: usize = 600;
const TOKENS: usize = 16;

fn main() -> Result<(), String> {
    let mut args = std::env::args().skip(1);
    let level = args.next().ok_or("expected a level and perhaps a name")?;
    let only = args.next();
    let kernels = Kernels::by_name(&level).ok_or_else(|| format!("no kernels {level} here"))?;
    for (name, make) in all() {
        if only.as_ref().is_some_and(|only| *only != name) {
            continue;
        }
        let mut work = make(kernels);
        // What is done once in a process isn't counted.
        (work.run)();
        counted_kernel(&mut work);
        println!("{name}: {} items, {} bytes", work.items, work.bytes);
    }
    Ok(())
}

/// The name and the place by which the counter knows a kernel's run.
// SAFETY: no other function has this name.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn counted_kernel(work: &mut Work) {
    (work.run)();
}

type Make = Box<dyn Fn(&'static Kernels) -> Work>;

/// Every kernel by its name, in the order of their runs.
fn all() -> Vec<(String, Make)> {
    let mut all: Vec<(String, Make)> = Vec::new();
    for dtype in DType::ALL.into_iter().filter(|&dtype| dtype != DType::I32) {
        for packed in [true, false] {
            let in_rows = !dtype.is_quantized() || matches!(dtype, DType::Q4K | DType::Q8_0);
            if if packed { !dtype.is_quantized() } else { !in_rows } {
                continue;
            }
            let weights = Weights { dtype, packed, rows: ROWS, k: K };
            let layout = if packed { "packed" } else { "rows" };
            for tokens in [1, TOKENS] {
                let name = format!("product {dtype} {layout} {tokens}");
                all.push((name, Box::new(move |kernels| work::product(kernels, weights, tokens))));
            }
        }
    }
    for kv_type in [DType::F16, DType::Q8_0] {
        let decode = move |kernels| work::decode(kernels, kv_type, POSITIONS);
        let prefill = move |kernels| work::prefill(kernels, kv_type, TOKENS, POSITIONS);
        all.push((format!("attention {kv_type} decode"), Box::new(decode)));
        all.push((format!("attention {kv_type} prefill"), Box::new(prefill)));
    }
    all.push(("quantize".into(), Box::new(|kernels| work::quantize(kernels, TOKENS, K))));
    all.push(("rms_norm".into(), Box::new(|kernels| work::rms_norm(kernels, TOKENS, K))));
    all
}
