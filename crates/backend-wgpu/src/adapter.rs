//! The adapters of this machine: which can be used, which comes first, which is meant by a name.

use std::sync::Arc;

use minfer_graph::{BackendError, DeviceMemory, DeviceSpec};

use crate::backend::WgpuBackend;
use crate::device::OpenOptions;
use crate::error::{NAME, device};
use crate::hal;
use crate::spec::WgpuSpec;

/// Bytes of parameters that a kernel may have.
const IMMEDIATE_BYTES: u32 = 128;

/// What an adapter is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A card with memory of its own.
    Discrete,
    /// A part of the processor, in the host's memory.
    Integrated,
    /// A share of a card that a virtual machine was given.
    Virtual,
    /// The driver doesn't say.
    Other,
    /// No device at all: the processor runs the shaders.
    Software,
}

/// The driver interface that reaches an adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Api {
    /// Vulkan.
    Vulkan,
    /// Metal.
    Metal,
    /// DirectX 12.
    Dx12,
}

/// A graphics processor that can run the kernels. Cheap to hold: no device is opened.
#[derive(Clone, Debug)]
pub struct Adapter {
    raw: wgpu::Adapter,
    info: wgpu::AdapterInfo,
    kind: Kind,
    api: Api,
}

/// Every usable adapter, best first: discrete before integrated, software last.
pub fn adapters() -> Vec<Adapter> {
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    descriptor.backends = wgpu::Backends::VULKAN | wgpu::Backends::METAL | wgpu::Backends::DX12;
    // Layers that check the API's use are for people who change wgpu, and they print.
    descriptor.flags = wgpu::InstanceFlags::empty();
    let instance = wgpu::Instance::new(descriptor);
    let found = pollster::block_on(instance.enumerate_adapters(wgpu::Backends::all()));
    let mut usable: Vec<Adapter> = found.into_iter().filter_map(Adapter::new).collect();
    usable.sort_by_key(|adapter| (adapter.kind, adapter.api));
    usable
}

/// Whether the kernel offers any graphics device. Asking it takes microseconds, loading the drivers most of a tenth of a
/// second.
fn may_have_hardware() -> bool {
    const NODES: [&str; 5] = ["/dev/dri", "/dev/nvidiactl", "/dev/dxg", "/dev/kgsl-3d0", "/dev/mali0"];
    !cfg!(target_os = "linux") || NODES.iter().any(|node| std::path::Path::new(node).exists())
}

/// The adapter to use: the best whose name contains `name` (in any case), or the best one. A software adapter is chosen
/// only if `explicit` says that somebody asked for this backend, or by its name.
///
/// # Errors
/// If something was asked for and isn't there; the message lists what is.
pub fn choose(name: Option<&str>, explicit: bool) -> Result<Option<Adapter>, BackendError> {
    if name.is_none() && !explicit && !may_have_hardware() {
        return Ok(None);
    }
    let all = adapters();
    let names: Vec<&str> = all.iter().map(Adapter::name).collect();
    let wanted = name.map(str::to_lowercase);
    let chosen = all.iter().find(|adapter| match &wanted {
        Some(wanted) => adapter.name().to_lowercase().contains(wanted),
        None => explicit || !adapter.is_software(),
    });
    match (chosen, name) {
        (Some(adapter), _) => Ok(Some(adapter.clone())),
        (None, None) if !explicit => Ok(None),
        _ => Err(absent(name, &names)),
    }
}

fn absent(name: Option<&str>, there: &[&str]) -> BackendError {
    let wanted = name.map_or(String::new(), |name| format!(" named \"{}\"", name.escape_debug()));
    let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
    let what = format!("no graphics adapter{wanted}; usable ones: {there}");
    BackendError::Device { backend: NAME.to_owned(), what }
}

impl Adapter {
    /// `None` if the kernels can't run there.
    fn new(raw: wgpu::Adapter) -> Option<Self> {
        let (mut info, limits) = (raw.get_info(), raw.limits());
        let kind = match info.device_type {
            wgpu::DeviceType::DiscreteGpu => Kind::Discrete,
            wgpu::DeviceType::IntegratedGpu => Kind::Integrated,
            wgpu::DeviceType::VirtualGpu => Kind::Virtual,
            wgpu::DeviceType::Other => Kind::Other,
            wgpu::DeviceType::Cpu => Kind::Software,
        };
        let api = match info.backend {
            wgpu::Backend::Vulkan => Api::Vulkan,
            wgpu::Backend::Metal => Api::Metal,
            wgpu::Backend::Dx12 => Api::Dx12,
            _ => return None,
        };
        info.name = crate::error::one_line(&info.name);
        let flags = raw.get_downlevel_capabilities().flags;
        // The kernels keep to WebGPU's own limits, which every adapter with its features has.
        let needed = wgpu::Limits::default();
        let usable = raw.features().contains(wgpu::Features::IMMEDIATES)
            && flags.contains(wgpu::DownlevelFlags::COMPUTE_SHADERS)
            && limits.max_immediate_size >= IMMEDIATE_BYTES
            && limits.max_storage_buffers_per_shader_stage >= needed.max_storage_buffers_per_shader_stage
            && limits.max_compute_invocations_per_workgroup >= needed.max_compute_invocations_per_workgroup
            && limits.max_compute_workgroup_storage_size >= needed.max_compute_workgroup_storage_size;
        usable.then_some(Self { raw, info, kind, api })
    }

    /// The device's name, as its driver gives it.
    pub fn name(&self) -> &str {
        &self.info.name
    }

    /// What it is made of.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// How it is reached.
    pub fn api(&self) -> Api {
        self.api
    }

    /// The driver and its version.
    pub fn driver(&self) -> String {
        crate::error::one_line(&format!("{} {}", self.info.driver, self.info.driver_info))
    }

    /// Whether the processor runs the shaders: right, and slower than the CPU backend.
    pub fn is_software(&self) -> bool {
        self.kind == Kind::Software
    }

    /// Whether its memory is the host's.
    pub fn is_unified(&self) -> bool {
        matches!(self.kind, Kind::Integrated | Kind::Software)
    }

    /// What the driver says of the device's memory now.
    pub fn memory(&self) -> DeviceMemory {
        hal::memory(&self.raw).memory
    }

    /// Whether [`memory`](Self::memory) is the size of the device's heap, because the driver doesn't tell what is free.
    pub fn memory_is_heap_size(&self) -> bool {
        hal::memory(&self.raw).is_heap_size
    }

    /// The description that a plan needs; no device is opened.
    pub fn spec(&self) -> Arc<dyn DeviceSpec> {
        self.spec_with(&OpenOptions::default())
    }

    /// The description of a device opened with `options`.
    pub fn spec_with(&self, options: &OpenOptions) -> Arc<dyn DeviceSpec> {
        Arc::new(WgpuSpec::new(self, options))
    }

    /// Opens the device.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn open(&self, options: OpenOptions) -> Result<WgpuBackend, BackendError> {
        WgpuBackend::open(self, options)
    }

    pub(crate) fn raw(&self) -> &wgpu::Adapter {
        &self.raw
    }

    pub(crate) fn info(&self) -> &wgpu::AdapterInfo {
        &self.info
    }

    /// An error of this adapter.
    pub(crate) fn error(&self, what: &str) -> BackendError {
        device(self.name(), what)
    }
}
