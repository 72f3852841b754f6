//! A step of decoding takes nothing from the heap: a test binary of its own, since it counts every allocation.
// An allocator that counts must implement an unsafe trait.
#![allow(unsafe_code)]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use common::*;
use minfer_graph::{BatchCounts, CancelFlag, Rung};
use minfer_testkit::rng::Rng;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call goes to the system's allocator with the arguments it came with; counting takes no memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|n| n.set(n.get() + 1));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: `ptr` came from `System` with this layout.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn a10_decoding_neither_builds_nor_allocates() {
    let rung = Rung { tokens: 1, outputs: 1 };
    let (counts, cancel) = (BatchCounts { tokens: 1, outputs: 1 }, CancelFlag::new());
    for setup in [Setup::cpu(3), Setup::split(3, 1), Setup::split(9, 2)] {
        let (mut runner, _) = setup.start();
        let mut random = Rng::new(1);
        let batches: Vec<_> = (0..8).map(|past| Batch::new(&mut random, rung, counts, past)).collect();
        run(&mut runner, &setup, &batches[0]);
        let mut logits = vec![0; 64];
        for batch in &batches[1..] {
            let (params, fill) = (setup.params(rung), batch.fill());
            let before = ALLOCATIONS.get();
            runner.run(&params, || unreachable!("decoding builds no graph"), &fill, counts, &cancel).unwrap();
            runner.read_output(0, &mut logits).unwrap();
            assert_eq!(ALLOCATIONS.get(), before);
        }
        assert_eq!((runner.stats().builds, runner.stats().reuses), (1, 7));
    }
}
