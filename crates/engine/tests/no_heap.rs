//! Nothing allocates in a decode step.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
#![allow(unsafe_code, reason = "a global allocator that counts")]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{arch, load, options};
use minfer_engine::{BenchOptions, CancelFlag, Options};
use minfer_tensor::DType;

/// Counts what is handed out.
struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is the system allocator's; counting doesn't touch the memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's contract is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract is passed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static GLOBAL: Counting = Counting;

#[test]
fn a_decode_step_allocates_nothing() {
    for kv_type in [DType::F32, DType::Q8_0] {
        decode_allocates_nothing(&Options { kv_type, ..options(8) });
    }
}

fn decode_allocates_nothing(options: &Options) {
    let mut engine = load(&arch("gemma3-dense"), options, 2);
    let cancel = CancelFlag::new();
    let mut decode = |n| {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        engine.bench(BenchOptions { prompt: 0, generate: n, depth: 0, limits: false }, &cancel).unwrap();
        ALLOCATIONS.load(Ordering::Relaxed) - before
    };
    decode(1);
    // More steps, no more allocations: what remains is the list of tokens.
    assert_eq!(decode(2), decode(60));
}
