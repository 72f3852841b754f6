//! A graphics processor as a [`Backend`].

use std::cell::{RefCell, RefMut};
use std::sync::Arc;

use minfer_graph::{
    Backend, BackendError, BatchCounts, BufId, BufKind, BufRef, CancelFlag, Counters, DeviceMemory,
    DeviceSpec, Segment, SegmentId, WeightBytes, WeightDecl, WeightId,
};
use minfer_tensor::Bytes;

use crate::adapter::Adapter;
use crate::bandwidth;
use crate::buffer::Buffers;
use crate::device::{Gpu, MemoryProvider, OpenOptions};
use crate::error::outside;
use crate::exec::{self, Places, Program};
use crate::pipelines::Pipelines;
use crate::spec::WgpuSpec;
use crate::staging::Staging;
use crate::weights::Weights;

/// An open device with its buffers, weights and prepared programs.
pub struct WgpuBackend {
    // Before the device, so that it goes first.
    pipelines: Pipelines,
    gpu: Gpu,
    limits: WgpuSpec,
    spec: Arc<dyn DeviceSpec>,
    memory: MemoryProvider,
    /// There from [`Backend::commit_fixed`] on. Reads of the host submit work too.
    staging: RefCell<Option<Staging>>,
    buffers: Buffers,
    weights: Weights,
    /// By [`SegmentId`].
    programs: Vec<Option<Program>>,
    counters: Counters,
}

impl WgpuBackend {
    pub(crate) fn open(adapter: &Adapter, options: OpenOptions) -> Result<Self, BackendError> {
        let gpu = Gpu::open(adapter, &options)?;
        let limits = WgpuSpec::new(adapter, &options);
        let pipelines = Pipelines::new(&gpu, adapter, options.cache_dir.as_deref());
        let asked = adapter.clone();
        let memory = options.memory.unwrap_or_else(|| Arc::new(move || asked.memory()));
        Ok(Self {
            pipelines,
            gpu,
            spec: Arc::new(limits.clone()),
            limits,
            memory,
            staging: RefCell::new(None),
            buffers: Buffers::default(),
            weights: Weights::default(),
            programs: Vec::new(),
            counters: Counters::default(),
        })
    }

    /// Bytes a second that the device reads from its memory, measured now with a buffer of at most `most` bytes that is freed
    /// again.
    ///
    /// # Errors
    /// If the device has no memory for the buffer, or fails.
    pub fn measure_read_bandwidth(&mut self, most: Bytes) -> Result<f64, BackendError> {
        bandwidth::measure(&self.gpu, self.limits.max_buffer_bytes().min(most).get())
    }

    fn staging(&self) -> Result<RefMut<'_, Staging>, BackendError> {
        let staging = self.staging.borrow_mut();
        RefMut::filter_map(staging, Option::as_mut).map_err(|_| {
            self.gpu.error("the staging buffers are created by the commit, which did not happen")
        })
    }
}

impl Backend for WgpuBackend {
    fn spec(&self) -> &Arc<dyn DeviceSpec> {
        &self.spec
    }

    fn device_memory(&self) -> DeviceMemory {
        (self.memory)()
    }

    fn weights_bytes(&self) -> Bytes {
        self.weights.bytes()
    }

    fn buffer_bytes(&self, kind: BufKind) -> Bytes {
        let fixed = kind == BufKind::Scratch && self.staging.borrow().is_some();
        let fixed = if fixed { self.limits.fixed_bytes() } else { Bytes::ZERO };
        self.buffers.bytes(kind).saturating_add(fixed)
    }

    fn counters(&self) -> Counters {
        Counters { submissions: self.gpu.submissions(), ..self.counters }
    }

    fn pool_gen(&self) -> u64 {
        self.buffers.generation()
    }

    fn commit_fixed(&mut self) -> Result<(), BackendError> {
        *self.staging.get_mut() = Some(Staging::new(&self.gpu)?);
        Ok(())
    }

    fn alloc_buffer(&mut self, kind: BufKind, bytes: Bytes) -> Result<BufId, BackendError> {
        self.buffers.create(&self.gpu, kind, bytes)
    }

    /// Programs that use the buffer are forgotten with it.
    fn free_buffer(&mut self, id: BufId) {
        if self.buffers.free(id) {
            for program in &mut self.programs {
                program.take_if(|program| program.uses(id));
            }
        }
    }

    fn write_host(&mut self, id: BufId, data: &[u8]) -> Result<(), BackendError> {
        let (found, len) = (Bytes::from(data.len()), self.buffers.get(id).map(|(_, len)| Bytes::new(len)));
        let Some(len) = len.filter(|&len| len == found) else {
            return Err(outside(id, len.unwrap_or_default(), found));
        };
        let backend = minfer_graph::BackendId::new(0);
        self.write_host_window(BufRef { backend, id, offset: Bytes::ZERO, len }, data)
    }

    fn write_host_window(&mut self, window: BufRef, data: &[u8]) -> Result<(), BackendError> {
        self.buffers.write(&self.gpu, &mut *self.staging()?, window, data)
    }

    fn read_host_window(&self, window: BufRef, out: &mut [u8]) -> Result<(), BackendError> {
        let (buffer, range) = self.buffers.start_of(window, out.len())?;
        self.staging()?.read(&self.gpu, buffer, range.start, out)
    }

    /// The bytes are copied; the source isn't needed afterwards.
    fn register_weight(
        &mut self,
        id: WeightId,
        decl: &WeightDecl,
        data: WeightBytes,
    ) -> Result<(), BackendError> {
        let mut staging = self.staging.borrow_mut();
        let staging = staging.as_mut().ok_or_else(|| self.gpu.error("weights come after the commit"))?;
        self.weights.insert((&self.gpu, &self.limits), staging, id, decl, &data)
    }

    fn prepare(&mut self, segment: Segment<'_>) -> Result<SegmentId, BackendError> {
        let places = Places::new(segment, &self.buffers, &self.weights);
        let program = exec::prepare(&self.gpu, &mut self.pipelines, places)?;
        let free = self.programs.iter().position(Option::is_none).unwrap_or(self.programs.len());
        if free == self.programs.len() {
            self.programs.push(None);
        }
        self.programs[free] = Some(program);
        Ok(SegmentId::new(free))
    }

    fn release(&mut self, id: SegmentId) {
        if let Some(program) = self.programs.get_mut(id.index()) {
            *program = None;
        }
    }

    fn execute(
        &mut self,
        id: SegmentId,
        counts: BatchCounts,
        cancel: &CancelFlag,
    ) -> Result<(), BackendError> {
        let Some(program) = self.programs.get(id.index()).and_then(Option::as_ref) else {
            return Err(self.gpu.error(&format!("{id} is not prepared")));
        };
        let mut staging = self.staging()?;
        let work = program.run(&self.gpu, &mut staging, counts, cancel)?;
        drop(staging);
        self.counters.dispatches += work.dispatches;
        self.counters.weight_bytes += work.weight_bytes;
        Ok(())
    }
}
