//! A run allocates nothing, on no thread.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
#![allow(unsafe_code, reason = "a global allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use minfer_backend_cpu::{CpuBackend, CpuSpec};
use minfer_testkit::cases::STATE_TYPES;
use minfer_testkit::runner::{Runner, Session};
use minfer_testkit::transformer::Transformer;

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(p, layout) };
    }
}

#[global_allocator]
static GLOBAL: Counting = Counting;

#[test]
fn execute_allocates_nothing() {
    for kv in STATE_TYPES {
        allocates_nothing(Transformer { kv, ..Transformer::TINY });
    }
}

fn allocates_nothing(model: Transformer) {
    let mut backend = CpuBackend::new(CpuSpec::detect(2)).unwrap();
    let mut session = Session::new(&mut backend);
    model.register(&mut session, 1).unwrap();
    for (rung, tokens) in [(1, 1), (32, 20)] {
        let mut runner = Runner::new(&mut session, &model.graph(rung, 1).unwrap()).unwrap();
        model.step(&mut session, &mut runner, &vec![5; tokens], 0, 1).unwrap();
        let counts = minfer_graph::BatchCounts { tokens, outputs: 1 };
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        for _ in 0..3 {
            runner.run(&mut session, counts).unwrap();
        }
        assert_eq!(ALLOCATIONS.load(Ordering::Relaxed), before, "{} rung {rung}", model.kv);
    }
}
