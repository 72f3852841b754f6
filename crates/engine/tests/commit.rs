//! A load that runs out of memory half-way.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod common;

use std::sync::atomic::Ordering;

use common::{TestMachine, arch, options};
use minfer_engine::ErrorKind;

#[test]
fn s3_there_is_no_engine_until_everything_is_committed() {
    for left in 0.. {
        let machine = TestMachine::new(1);
        machine.cpu_grants.buffers.store(left, Ordering::Relaxed);
        let Err(error) = machine.load(&arch("llama-dense"), &options(8)) else {
            assert!(left > 2, "the load took more than {left} buffers");
            return;
        };
        assert_eq!(error.kind(), ErrorKind::Failed);
        assert!(error.to_string().contains("scripted"), "{error}");
    }
}
