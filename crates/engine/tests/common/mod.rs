//! Loaded tiny models.

#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(clippy::unwrap_used, reason = "only tests use it")]

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use minfer_backend_cpu::{CpuBackend, CpuSpec};
use minfer_engine::{
    CancelFlag, Engine, Error, Host, HostDevice, Machine, ModelFile, Options, Planned, Score, ScoredPosition,
    host_memory,
};
use minfer_graph::{Backend, BackendError, DeviceMemory};
use minfer_tensor::DType;
use minfer_testkit::scripted::{Grants, Scripted, ScriptedSpec};

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

/// A CPU, and a device where the host describes one: another CPU backend under another name, with scripted failures.
pub(crate) struct TestMachine {
    pub(crate) cpu: CpuSpec,
    pub(crate) device: Option<HostDevice>,
    /// Answers to further questions about the device's memory, the last one for good; none: always the first answer.
    pub(crate) answers: RefCell<Vec<DeviceMemory>>,
    pub(crate) device_grants: Arc<Grants>,
    pub(crate) cpu_grants: Arc<Grants>,
}

impl TestMachine {
    pub(crate) fn new(threads: usize) -> Self {
        Self {
            cpu: CpuSpec::detect(threads),
            device: None,
            answers: RefCell::default(),
            device_grants: Arc::default(),
            cpu_grants: Arc::default(),
        }
    }

    /// With a device that has this memory.
    pub(crate) fn with_device(self, memory: DeviceMemory) -> Self {
        let spec = ScriptedSpec::new(Arc::new(self.cpu));
        self.with_device_spec(spec, memory)
    }

    pub(crate) fn with_device_spec(mut self, spec: ScriptedSpec, memory: DeviceMemory) -> Self {
        self.device = Some(HostDevice { spec: Arc::new(spec), memory });
        self
    }

    pub(crate) fn host(&self) -> Host {
        Host {
            cpu: Arc::new(self.cpu.with_repack(false)),
            repacking_cpu: Arc::new(self.cpu),
            threads: self.cpu.threads(),
            cpu_level: self.cpu.kernels().name().to_owned(),
            memory: host_memory(),
            device: self.device.clone(),
            no_device: None,
        }
    }

    pub(crate) fn load(&self, path: &Path, options: &Options) -> Result<Engine, Error> {
        let planned = Planned::new(ModelFile::open(path)?, options, &self.host())?;
        Engine::load(planned, self, &mut |_| {})
    }
}

fn backend(cpu: CpuSpec) -> Box<dyn Backend> {
    Box::new(CpuBackend::new(cpu).unwrap())
}

impl Machine for TestMachine {
    fn device_memory(&self) -> DeviceMemory {
        let mut answers = self.answers.borrow_mut();
        let scripted = if answers.len() > 1 { Some(answers.remove(0)) } else { answers.first().cloned() };
        let first = self.device.as_ref().map(|device| device.memory.clone());
        scripted.or(first).unwrap_or(DeviceMemory::NoDevice)
    }

    fn open_device(&self) -> Result<Box<dyn Backend>, BackendError> {
        let spec = Arc::clone(&self.device.as_ref().unwrap().spec);
        Ok(Box::new(Scripted::new(backend(self.cpu), spec, Arc::clone(&self.device_grants))))
    }

    fn open_cpu(&self, repack: bool) -> Result<Box<dyn Backend>, BackendError> {
        let cpu = self.cpu.with_repack(repack);
        Ok(Box::new(Scripted::new(backend(cpu), Arc::new(cpu), Arc::clone(&self.cpu_grants))))
    }
}

/// The description of a machine without a device.
pub(crate) fn host(threads: usize) -> Host {
    TestMachine::new(threads).host()
}

pub(crate) fn load(path: &Path, options: &Options, threads: usize) -> Engine {
    TestMachine::new(threads).load(path, options).unwrap()
}

pub(crate) fn score(engine: &mut Engine, ids: &[u32], top: usize) -> (Score, Vec<ScoredPosition>) {
    let mut positions = Vec::new();
    let scored = engine.score(ids, top, &CancelFlag::new(), &mut |p| positions.push(p.clone())).unwrap();
    (scored, positions)
}
