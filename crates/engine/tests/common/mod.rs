//! A loaded tiny model on the CPU.

#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(clippy::unwrap_used, reason = "only tests use it")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use minfer_backend_cpu::{CpuBackend, CpuSpec};
use minfer_engine::{CancelFlag, Engine, Host, ModelFile, Options, Planned, Score, host_memory};
use minfer_tensor::DType;

/// The tiny models that have golden logits.
pub(crate) const ARCHS: [&str; 4] = ["llama-dense", "qwen2-dense", "qwen3-dense", "gemma3-dense"];

/// A file of the test data.
pub(crate) fn data(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../testkit/data").join(path)
}

pub(crate) fn arch(name: &str) -> PathBuf {
    data(&format!("archs/{name}.gguf"))
}

/// Options for a tiny model: a short context, KV in f32.
pub(crate) fn options(batch: usize) -> Options {
    Options { ctx: Some(64), batch, kv_type: DType::F32, ..Options::default() }
}

pub(crate) fn host(threads: usize) -> (Host, CpuBackend) {
    let spec = CpuSpec::detect(threads);
    let cpu_level = spec.kernels().name().to_owned();
    let host = Host { cpu: Arc::new(spec), threads, cpu_level, memory: host_memory() };
    (host, CpuBackend::new(spec).unwrap())
}

pub(crate) fn load(path: &Path, options: &Options, threads: usize) -> Engine {
    let (host, backend) = host(threads);
    let planned = Planned::new(ModelFile::open(path).unwrap(), options, &host).unwrap();
    Engine::load(planned, vec![Box::new(backend)], &mut |_| {}).unwrap()
}

pub(crate) fn score(engine: &mut Engine, ids: &[u32], top: usize) -> Score {
    engine.score(ids, top, &CancelFlag::new(), &mut |_, _| {}).unwrap()
}
