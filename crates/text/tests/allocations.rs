//! Drawing and showing tokens allocates nothing once a stream is under way.

#![allow(clippy::unwrap_used, unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;

use minfer_text::{Detokenizer, Sampler, SamplingParams};

/// Counts what a thread asks for, so that other tests don't matter.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

fn count() {
    // A thread that is ending has no counter any more.
    let _ = ALLOCATIONS.try_with(|n| n.set(n.get() + 1));
}

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are those that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations(run: impl FnOnce()) -> usize {
    let before = ALLOCATIONS.get();
    run();
    ALLOCATIONS.get() - before
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations(|| drop(black_box(Box::new(1)))), 1);
}

#[test]
fn sampling_allocates_nothing() {
    let n_vocab = 5000;
    let logits: Vec<f32> = (0..n_vocab).map(|i| (i * 37 % 101) as f32 / 10.0).collect();
    let recent: Vec<u32> = (0..100).collect();
    let base = SamplingParams { seed: Some(1), repeat_penalty: 1.1, ..SamplingParams::default() };
    for params in [
        SamplingParams { temperature: 0.0, ..base },
        SamplingParams { temperature: 0.8, top_k: 40, top_p: 0.9, min_p: 0.05, ..base },
        SamplingParams { temperature: 1.5, top_k: 0, top_p: 0.999, ..base },
    ] {
        let mut sampler = Sampler::new(params, n_vocab).unwrap();
        let n = allocations(|| {
            for _ in 0..50 {
                sampler.sample(&logits, &recent).unwrap();
            }
        });
        assert_eq!(n, 0, "{sampler:?}");
    }
}

#[test]
fn streaming_allocates_nothing() {
    let pieces: [&[u8]; 6] = [b"Hello", b" w\xC3", b"\xB6rld <", b"|im", b"x \xFF", b"\n"];
    let mut detokenizer = Detokenizer::new(["<|im_end|>".to_owned(), "STOP".to_owned()]);
    let mut out = String::with_capacity(1 << 16);
    let n = allocations(|| {
        for piece in pieces.iter().cycle().take(1000) {
            detokenizer.push(piece, &mut out);
        }
    });
    assert_eq!(n, 0, "{} bytes of text", out.len());
}
