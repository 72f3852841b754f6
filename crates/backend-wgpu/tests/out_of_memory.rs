//! A driver that really finds no memory: in a child process whose address space is small. Mesa's software driver takes
//! buffers from there.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::process::Command;

use minfer_backend_wgpu::OpenOptions;
use minfer_graph::{Backend, BackendError, BatchCounts, BufKind, CancelFlag};
use minfer_tensor::Bytes;
use support::{buffers, doubling, floats, prepare, read, window};

/// What the driver, its compiler and a few buffers fit in, in KiB.
const ADDRESS_SPACE: u32 = 2 << 20;

#[test]
fn a_driver_without_memory_is_an_error_and_the_device_lives() {
    let Some(adapter) = support::adapter() else { return };
    if !adapter.is_software() {
        return;
    }
    let script = format!("ulimit -v {ADDRESS_SPACE} && exec \"$0\" --exact the_child --ignored --nocapture");
    let this = std::env::current_exe().unwrap();
    let output = Command::new("sh").arg("-c").arg(script).arg(this).output().unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

#[test]
#[ignore = "the other test runs it with little memory"]
fn the_child() {
    let mut backend = support::open(OpenOptions::default()).unwrap();
    let [x, y] = [0, 1].map(|_| {
        let id = backend.alloc_buffer(BufKind::Pool, Bytes::new(128)).unwrap();
        window(id, 0, 128)
    });
    let segment = prepare(&mut backend, &doubling(), &buffers(&[x, y])).unwrap();
    backend.write_host(x.id, &floats(&[1.5; 32])).unwrap();
    let held = backend.pool_len();
    let large = backend.spec().max_buffer_bytes().min(Bytes::new(128 << 20));
    let mut taken = Vec::new();
    let error = loop {
        match backend.alloc_buffer(BufKind::Kv, large) {
            Ok(id) => taken.push(id),
            Err(error) => break error,
        }
        assert!(taken.len() < 1000, "memory has no end");
    };
    assert!(matches!(&error, BackendError::OutOfMemory { requested, .. } if *requested == large), "{error}");
    assert_eq!(backend.pool_len(), held);
    taken.into_iter().for_each(|id| backend.free_buffer(id));
    backend.execute(segment, BatchCounts { tokens: 8, outputs: 0 }, &CancelFlag::new()).unwrap();
    assert_eq!(read(&backend, y), floats(&[3.0; 32]));
}
