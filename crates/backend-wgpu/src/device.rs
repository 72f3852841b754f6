//! An open device: creation, allocation, submission, and what went wrong since the last look.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use minfer_graph::{BackendError, DeviceMemory};
use minfer_tensor::Bytes;

use crate::adapter::Adapter;
use crate::error::{device, one_line, out_of_memory};
use crate::faults::{Fate, FaultPlan, Faults};
use crate::spec::SUBALLOCATION_BLOCK;

/// Says what the device's memory is, in place of the driver.
pub type MemoryProvider = Arc<dyn Fn() -> DeviceMemory + Send + Sync>;

/// How a device is opened.
#[derive(Clone, Default)]
pub struct OpenOptions {
    /// Folder for compiled pipelines, where the driver can keep them; `None` keeps none.
    pub cache_dir: Option<PathBuf>,
    /// Who says what memory there is; `None` asks the driver.
    pub memory: Option<MemoryProvider>,
    /// Most bytes of a weight in one buffer, if fewer than the adapter allows; longer weights are cut between rows.
    pub weight_chunk: Option<Bytes>,
    /// Products that one submission may have, in place of about a second's; for tests.
    #[doc(hidden)]
    pub products_at_once: Option<u64>,
    /// Failures on order, for tests.
    #[doc(hidden)]
    pub faults: Faults,
}

/// What wgpu has reported from wherever it noticed.
#[derive(Debug, Default)]
struct Health {
    /// Why the device is lost: for good.
    lost: OnceLock<String>,
    /// The first error that no call has returned yet.
    error: Mutex<Option<wgpu::Error>>,
}

/// An open device and its queue.
pub(crate) struct Gpu {
    adapter: String,
    pub(crate) device: wgpu::Device,
    queue: wgpu::Queue,
    health: Arc<Health>,
    faults: FaultPlan,
    submissions: AtomicU64,
    products_at_once: u64,
}

impl Gpu {
    /// Opens the device of an adapter with all that the kernels can use of it.
    pub(crate) fn open(adapter: &Adapter, options: &OpenOptions) -> Result<Self, BackendError> {
        let optional = wgpu::Features::SUBGROUP | wgpu::Features::PIPELINE_CACHE;
        let descriptor = wgpu::DeviceDescriptor {
            label: Some("minfer"),
            required_features: wgpu::Features::IMMEDIATES | (adapter.raw().features() & optional),
            required_limits: adapter.raw().limits(),
            memory_hints: wgpu::MemoryHints::Manual {
                suballocated_device_memory_block_size: SUBALLOCATION_BLOCK..SUBALLOCATION_BLOCK,
            },
            ..Default::default()
        };
        let (device, queue) = pollster::block_on(adapter.raw().request_device(&descriptor))
            .map_err(|error| adapter.error(&format!("can't be opened: {}", one_line(&error.to_string()))))?;
        let health = Arc::new(Health::default());
        let of_loss = health.clone();
        device.set_device_lost_callback(move |reason, message| {
            of_loss.lost.get_or_init(|| one_line(&format!("{reason:?}: {message}")));
        });
        let of_error = health.clone();
        device.on_uncaptured_error(Arc::new(move |error| {
            of_error.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }));
        let about_a_second = if adapter.is_software() { 1 << 32 } else { 1 << 35 };
        let products_at_once = options.products_at_once.unwrap_or(about_a_second);
        let (adapter, faults) = (adapter.name().to_owned(), FaultPlan::new(options.faults));
        let submissions = AtomicU64::new(0);
        Ok(Self { adapter, device, queue, health, faults, submissions, products_at_once })
    }

    /// The adapter's name.
    pub(crate) fn adapter(&self) -> &str {
        &self.adapter
    }

    /// How often work was handed to the device.
    pub(crate) fn submissions(&self) -> u64 {
        self.submissions.load(Ordering::Relaxed)
    }

    /// Whether subgroup operations may be used.
    pub(crate) fn has_subgroups(&self) -> bool {
        self.device.features().contains(wgpu::Features::SUBGROUP)
    }

    /// Whether subgroup operations may be used, and no subgroup is smaller than `size`.
    pub(crate) fn has_subgroups_of(&self, size: u32) -> bool {
        self.has_subgroups() && self.device.adapter_info().subgroup_min_size >= size
    }

    /// Products that one submission may have: a driver ends work that takes seconds, and a cancelled run waits for it.
    pub(crate) fn products_at_once(&self) -> u64 {
        self.products_at_once
    }

    /// An error of this device.
    pub(crate) fn error(&self, what: &str) -> BackendError {
        device(&self.adapter, what)
    }

    /// What went wrong since the last call. wgpu itself says nothing of a lost device: calls succeed and do nothing.
    ///
    /// # Errors
    /// Always, once the device is lost; an error of wgpu once.
    pub(crate) fn check(&self) -> Result<(), BackendError> {
        if let Some(reason) = self.health.lost.get() {
            return Err(self.error(&format!("the device was lost ({reason})")));
        }
        let error = self.health.error.lock().unwrap_or_else(PoisonError::into_inner).take();
        error.map_or(Ok(()), |error| Err(self.error_of(&error, Bytes::ZERO)))
    }

    /// A new buffer, whose bytes are zero once they are first used.
    pub(crate) fn create_buffer(
        &self,
        what: &str,
        bytes: u64,
        usage: wgpu::BufferUsages,
    ) -> Result<wgpu::Buffer, BackendError> {
        self.check()?;
        let requested = Bytes::new(bytes);
        if self.faults.next_allocation_fails() {
            return Err(out_of_memory(&self.adapter, requested, "a failure on order"));
        }
        let descriptor =
            wgpu::BufferDescriptor { label: Some(what), size: bytes, usage, mapped_at_creation: false };
        self.scoped(requested, || self.device.create_buffer(&descriptor))
    }

    /// Runs `create` and returns what wgpu says of it as an error of this call.
    pub(crate) fn scoped<T>(&self, requested: Bytes, create: impl FnOnce() -> T) -> Result<T, BackendError> {
        let filters =
            [wgpu::ErrorFilter::Validation, wgpu::ErrorFilter::OutOfMemory, wgpu::ErrorFilter::Internal];
        let scopes = filters.map(|filter| self.device.push_error_scope(filter));
        let made = create();
        let mut found = None;
        for scope in scopes.into_iter().rev() {
            found = pollster::block_on(scope.pop()).or(found);
        }
        match found {
            Some(error) => Err(self.error_of(&error, requested)),
            None => self.check().map(|()| made),
        }
    }

    /// Hands recorded work to the device.
    pub(crate) fn submit(
        &self,
        encoder: wgpu::CommandEncoder,
    ) -> Result<wgpu::SubmissionIndex, BackendError> {
        let encoder = match self.faults.next_submission() {
            Fate::Runs => encoder,
            Fate::Invalid => self.invalid_commands(),
            Fate::DeviceLost => {
                self.device.destroy();
                self.wait(None)?;
                encoder
            }
        };
        let index = self.queue.submit([encoder.finish()]);
        self.submissions.fetch_add(1, Ordering::Relaxed);
        self.check().map(|()| index)
    }

    /// Waits for a submission, or for all.
    pub(crate) fn wait(&self, submission: Option<wgpu::SubmissionIndex>) -> Result<(), BackendError> {
        let wait = wgpu::PollType::Wait { submission_index: submission, timeout: None };
        let polled = self.device.poll(wait);
        self.check()?;
        polled.map(|_| ()).map_err(|error| self.error(&one_line(&error.to_string())))
    }

    /// A recorder of work.
    pub(crate) fn encoder(&self) -> wgpu::CommandEncoder {
        self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default())
    }

    /// Work that no device accepts: it copies more than there is.
    fn invalid_commands(&self) -> wgpu::CommandEncoder {
        let usage = wgpu::BufferUsages::COPY_DST;
        let descriptor = wgpu::BufferDescriptor { label: None, size: 4, usage, mapped_at_creation: false };
        let mut encoder = self.encoder();
        encoder.clear_buffer(&self.device.create_buffer(&descriptor), 0, Some(8));
        encoder
    }

    fn error_of(&self, error: &wgpu::Error, requested: Bytes) -> BackendError {
        match error {
            wgpu::Error::OutOfMemory { .. } => {
                out_of_memory(&self.adapter, requested, "the driver has no more")
            }
            other => self.error(&one_line(&other.to_string())),
        }
    }
}
