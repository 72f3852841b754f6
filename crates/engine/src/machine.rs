//! The machine that a model runs on: descriptions for the plan, the devices themselves for the load.

use std::sync::Arc;

use minfer_graph::{Backend, BackendError, DeviceMemory, DeviceSpec};

/// The machine that a plan is for: descriptions and answers only, so that a plan touches no device.
#[derive(Clone)]
pub struct Host {
    /// The CPU backend, using weights where they lie.
    pub cpu: Arc<dyn DeviceSpec>,
    /// The CPU backend, repacking weights at the load.
    pub repacking_cpu: Arc<dyn DeviceSpec>,
    /// Threads of the CPU backend.
    pub threads: usize,
    /// Kernel table of the CPU backend.
    pub cpu_level: String,
    /// What memory the host has: the answer of [`host_memory`](crate::host_memory()).
    pub memory: DeviceMemory,
    /// The device beside the CPU.
    pub device: Option<HostDevice>,
    /// Why there is no device, where a person should know.
    pub no_device: Option<String>,
}

/// A device beside the CPU, as far as a plan knows it.
#[derive(Clone)]
pub struct HostDevice {
    /// What it can do.
    pub spec: Arc<dyn DeviceSpec>,
    /// What it said of its memory, before this process took any of it (rule A2).
    pub memory: DeviceMemory,
}

/// Opens what a [`Host`] describes.
pub trait Machine {
    /// What the device says of its memory now; [`DeviceMemory::NoDevice`] if there is none.
    fn device_memory(&self) -> DeviceMemory;

    /// The device, new and empty. Only called for a plan that uses it.
    ///
    /// # Errors
    /// If the driver refuses.
    fn open_device(&self) -> Result<Box<dyn Backend>, BackendError>;

    /// The CPU, new and empty, repacking weights at the load or not.
    ///
    /// # Errors
    /// If the system refuses a thread.
    fn open_cpu(&self, repack: bool) -> Result<Box<dyn Backend>, BackendError>;
}

impl Host {
    /// The CPU backend of a load.
    pub(crate) fn cpu(&self, repack: bool) -> &Arc<dyn DeviceSpec> {
        if repack { &self.repacking_cpu } else { &self.cpu }
    }
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { threads, cpu_level, memory, device, .. } = self;
        let mut fields = f.debug_struct("Host");
        fields.field("threads", threads).field("cpu_level", cpu_level).field("memory", memory);
        fields.field("device", device).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for HostDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut fields = f.debug_struct("HostDevice");
        fields.field("device", &self.spec.device_name()).field("memory", &self.memory).finish()
    }
}
