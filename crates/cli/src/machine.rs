//! The backends of this machine, by the options.

use std::cell::Cell;
use std::sync::Arc;

use minfer_backend_cpu::{CpuBackend, CpuSpec, Kernels};
use minfer_backend_wgpu::{Adapter, OpenOptions, choose};
use minfer_engine::{Host, HostDevice, Machine, host_memory};
use minfer_graph::{Backend, BackendError, DeviceMemory};
use minfer_tensor::Bytes;

use crate::args::{Device, EngineArgs};
use crate::env;
use crate::error::CliError;

/// The processor, and the device that the options name, if there is one. Nothing is opened yet.
pub(crate) struct LocalMachine {
    cpu: CpuSpec,
    device: Option<Adapter>,
    /// Why there is no device although there could be one.
    no_device: Option<String>,
    /// Whether a device is measured when it is opened, and what that gave.
    measures: bool,
    bytes_per_second: Cell<Option<f64>>,
}

/// The largest buffer that a measurement takes for a moment, before anything else is there.
const MEASURED: Bytes = Bytes::new(64 << 20);

impl LocalMachine {
    /// Finds the device of `--device`.
    ///
    /// # Errors
    /// If a device is named that isn't there; as [`cpu`].
    pub(crate) fn find(args: &EngineArgs) -> Result<Self, CliError> {
        let cpu = cpu(args.n_threads())?;
        let without = |no_device| Self {
            cpu,
            device: None,
            no_device,
            measures: false,
            bytes_per_second: Cell::default(),
        };
        match &args.device {
            Device::Cpu => Ok(without(None)),
            Device::Cuda(_) => Err(absent(args)),
            Device::Wgpu(name) => {
                let device = choose(name.as_deref(), true).map_err(|_| absent(args))?;
                Ok(Self { device, ..without(None) })
            }
            // Nobody asked for a device: one that can't be had is worth a word, not an error.
            Device::Auto => Ok(match choose(None, false) {
                Ok(device) => Self { device, ..without(None) },
                Err(error) => without(Some(format!("{error}: running on the CPU"))),
            }),
        }
    }

    /// Measures the device's memory when it is opened.
    pub(crate) fn measuring(self) -> Self {
        Self { measures: true, ..self }
    }

    /// What the device reads from its memory in a second, once it was measured.
    pub(crate) fn bytes_per_second(&self) -> Option<f64> {
        self.bytes_per_second.get()
    }

    /// The description that plans are made for, with what memory there is now.
    pub(crate) fn host(&self) -> Host {
        let device = self.device.as_ref();
        Host {
            cpu: Arc::new(self.cpu.with_repack(false)),
            repacking_cpu: Arc::new(self.cpu),
            threads: self.cpu.threads(),
            cpu_level: self.cpu.kernels().name().to_owned(),
            memory: host_memory(),
            device: device.map(|adapter| HostDevice { spec: adapter.spec(), memory: adapter.memory() }),
            no_device: self.no_device.clone(),
        }
    }

    /// What a person should know of the device before its speed surprises them.
    pub(crate) fn remark(&self) -> Option<String> {
        let software = self.device.as_ref().filter(|adapter| adapter.is_software())?;
        Some(format!("{} is no graphics processor: the CPU runs its shaders", software.name()))
    }
}

impl Machine for LocalMachine {
    fn device_memory(&self) -> DeviceMemory {
        self.device.as_ref().map_or(DeviceMemory::NoDevice, Adapter::memory)
    }

    fn open_device(&self) -> Result<Box<dyn Backend>, BackendError> {
        let adapter = self.device.as_ref().expect("a plan uses the device that it was made for");
        let options = OpenOptions { cache_dir: env::cache_dir(), ..OpenOptions::default() };
        let mut device = adapter.open(options)?;
        if self.measures {
            self.bytes_per_second.set(Some(device.measure_read_bandwidth(MEASURED)?));
        }
        Ok(Box::new(device))
    }

    fn open_cpu(&self, repack: bool) -> Result<Box<dyn Backend>, BackendError> {
        Ok(Box::new(CpuBackend::new(self.cpu.with_repack(repack))?))
    }
}

/// The processor with its best kernels, or those that the environment names.
///
/// # Errors
/// If the environment names kernels that aren't there.
pub(crate) fn cpu(threads: usize) -> Result<CpuSpec, CliError> {
    let Some(wanted) = env::cpu_level() else { return Ok(CpuSpec::detect(threads)) };
    match Kernels::by_name(&wanted) {
        Some(kernels) => Ok(CpuSpec::new(threads, kernels)),
        None => Err(CliError::NoCpuLevel { wanted, available: levels(Kernels::available()) }),
    }
}

/// The names of kernels: `a, b or c`.
fn levels(available: &[&Kernels]) -> String {
    let names: Vec<&str> = available.iter().map(|kernels| kernels.name()).collect();
    match names.as_slice() {
        [rest @ .., last] if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => names.concat(),
    }
}

fn absent(args: &EngineArgs) -> CliError {
    CliError::NoDevice { source_name: args.device_source().to_owned(), wanted: args.device.to_string() }
}
