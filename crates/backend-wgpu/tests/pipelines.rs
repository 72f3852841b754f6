//! Compiled kernels on disk.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use minfer_backend_wgpu::OpenOptions;
use minfer_graph::{Backend, BatchCounts, BufKind, CancelFlag};
use minfer_tensor::Bytes;
use support::{buffers, doubling, floats, prepare, read, window};

/// Compiles a kernel, runs it and closes the device; whether there was one.
fn double_with(folder: &Path) -> bool {
    let options = OpenOptions { cache_dir: Some(folder.to_owned()), ..Default::default() };
    let Some(mut backend) = support::open(options) else { return false };
    let [x, y] = [0, 1].map(|_| {
        let id = backend.alloc_buffer(BufKind::Pool, Bytes::new(128)).unwrap();
        window(id, 0, 128)
    });
    let segment = prepare(&mut backend, &doubling(), &buffers(&[x, y])).unwrap();
    backend.write_host(x.id, &floats(&[1.5; 32])).unwrap();
    backend.execute(segment, BatchCounts { tokens: 8, outputs: 0 }, &CancelFlag::new()).unwrap();
    assert_eq!(read(&backend, y), floats(&[3.0; 32]));
    true
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn compiled_kernels_are_kept_and_a_damaged_file_is_replaced() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("not there yet");
    if !double_with(&folder) {
        return;
    }
    // Not every driver gives its pipelines out.
    let Ok([file]) = <[PathBuf; 1]>::try_from(files(&folder)) else {
        assert_eq!(files(&folder), Vec::<PathBuf>::new());
        return;
    };
    let kept = fs::read(&file).unwrap();
    assert!(!kept.is_empty());
    assert!(double_with(&folder));
    for damaged in [&kept[..kept.len() / 2], &[0xa5; 4096], b""] {
        fs::write(&file, damaged).unwrap();
        assert!(double_with(&folder));
        assert!(fs::read(&file).unwrap().len() > 64, "replaced");
    }
    assert_eq!(files(&folder), [file]);
}
