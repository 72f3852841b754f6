//! The CPU as a [`Backend`].
#![allow(unsafe_code, reason = "runs prepared programs, whose contract the backend's borrows fulfil")]

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use minfer_graph::{
    Backend, BackendError, BatchCounts, Binding, BufId, BufKind, BufRef, CancelFlag, DeviceMemory,
    DeviceSpec, Segment, SegmentId, WeightBytes, WeightDecl, WeightId,
};
use minfer_tensor::Bytes;

use crate::buffer::{AlignedBuf, ByteCounter};
use crate::exec::{self, Halt, Places, Program};
use crate::limits;
use crate::pool::{PoolError, ThreadPool};
use crate::spec::{CpuSpec, NAME};
use crate::watch::Watch;
use crate::weights::{Weight, Weights};

/// Buffers, weights and prepared programs, and the threads that run them.
pub struct CpuBackend {
    cpu: CpuSpec,
    spec: Arc<dyn DeviceSpec>,
    pool: ThreadPool,
    /// How many of its threads run a program.
    watch: Watch,
    /// By [`BufId`].
    buffers: Vec<Option<AlignedBuf>>,
    counters: [ByteCounter; 3],
    generation: u64,
    weights: Weights,
    /// By [`SegmentId`].
    programs: Vec<Option<Program>>,
}

impl CpuBackend {
    /// A backend of the described kind; starts its threads.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub fn new(spec: CpuSpec) -> Result<Self, PoolError> {
        let mut pool = ThreadPool::new(spec.threads())?;
        Ok(Self {
            watch: Watch::new(&mut pool),
            cpu: spec,
            spec: Arc::new(spec),
            pool,
            buffers: Vec::new(),
            counters: Default::default(),
            generation: 0,
            weights: Weights::default(),
            programs: Vec::new(),
        })
    }

    /// How often a buffer was created or freed (rule A9).
    pub fn alloc_count(&self) -> u64 {
        self.generation
    }

    fn buffer(&self, id: BufId) -> Option<&AlignedBuf> {
        self.buffers.get(id.index()).and_then(Option::as_ref)
    }

    /// A window's first `len` bytes as a range of its buffer.
    fn range(&self, window: BufRef, len: usize) -> Result<std::ops::Range<usize>, BackendError> {
        let available = self.buffer(window.id).map_or(0, AlignedBuf::len);
        let (offset, longest) = exec::bounds(window, available)?;
        if len > longest {
            return Err(exec::outside(window.id, window.len, Bytes::from(len)));
        }
        Ok(offset..offset + len)
    }
}

impl Backend for CpuBackend {
    fn spec(&self) -> &Arc<dyn DeviceSpec> {
        &self.spec
    }

    /// The CPU's memory is the host's, which is accounted for elsewhere (rule B5).
    fn device_memory(&self) -> DeviceMemory {
        DeviceMemory::NoDevice
    }

    fn weights_bytes(&self) -> Bytes {
        self.weights.bytes()
    }

    fn buffer_bytes(&self, kind: BufKind) -> Bytes {
        Bytes::from(self.counters[counter_of(kind)].bytes())
    }

    fn pool_gen(&self) -> u64 {
        self.generation
    }

    fn alloc_buffer(&mut self, kind: BufKind, bytes: Bytes) -> Result<BufId, BackendError> {
        let out_of_memory =
            |reason| BackendError::OutOfMemory { backend: NAME.to_owned(), requested: bytes, reason };
        let Some(len) = bytes.to_usize() else {
            return Err(out_of_memory("more than this processor can address".to_owned()));
        };
        let buffer = AlignedBuf::zeroed(len, &self.counters[counter_of(kind)])
            .map_err(|error| out_of_memory(error.to_string()))?;
        self.generation += 1;
        Ok(BufId::new(insert(&mut self.buffers, buffer)))
    }

    /// Programs that use the buffer are forgotten with it.
    fn free_buffer(&mut self, id: BufId) {
        let freed = self.buffers.get_mut(id.index()).and_then(Option::take);
        if freed.is_some() {
            self.generation += 1;
            for program in &mut self.programs {
                program.take_if(|program| program.uses(id));
            }
        }
    }

    fn write_host(&mut self, id: BufId, data: &[u8]) -> Result<(), BackendError> {
        let Some(buffer) = self.buffers.get_mut(id.index()).and_then(Option::as_mut) else {
            return Err(exec::outside(id, Bytes::ZERO, Bytes::from(data.len())));
        };
        if buffer.len() != data.len() {
            return Err(exec::outside(id, Bytes::from(buffer.len()), Bytes::from(data.len())));
        }
        buffer.as_mut_slice().copy_from_slice(data);
        Ok(())
    }

    fn write_host_window(&mut self, window: BufRef, data: &[u8]) -> Result<(), BackendError> {
        let range = self.range(window, data.len())?;
        if let Some(buffer) = self.buffers.get_mut(window.id.index()).and_then(Option::as_mut) {
            buffer.as_mut_slice()[range].copy_from_slice(data);
        }
        Ok(())
    }

    fn read_host_window(&self, window: BufRef, out: &mut [u8]) -> Result<(), BackendError> {
        let range = self.range(window, out.len())?;
        if let Some(buffer) = self.buffer(window.id) {
            out.copy_from_slice(&buffer.as_slice()[range]);
        }
        Ok(())
    }

    /// The bytes are repacked, or used where they lie.
    fn register_weight(
        &mut self,
        id: WeightId,
        decl: &WeightDecl,
        data: WeightBytes,
    ) -> Result<(), BackendError> {
        self.weights.insert(id, decl, data, &self.cpu, &mut self.pool)
    }

    fn measure_read(&mut self, places: &[Binding]) -> Result<Option<f64>, BackendError> {
        let Self { buffers, weights, .. } = self;
        let parts =
            places.iter().map(|place| part(buffers, weights, place)).collect::<Result<Vec<_>, _>>()?;
        Ok(limits::read_rate(&mut self.pool, self.cpu.kernels(), &parts))
    }

    fn measure_products(&mut self) -> Result<Option<f64>, BackendError> {
        Ok(Some(limits::product_rate(&mut self.pool, self.cpu.kernels())))
    }

    fn prepare(&mut self, segment: Segment<'_>) -> Result<SegmentId, BackendError> {
        let places = Places::new(segment, &mut self.buffers, &self.weights);
        let program = exec::prepare(&self.cpu, places)?;
        Ok(SegmentId::new(insert(&mut self.programs, program)))
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
            return Err(device_error(format!("{id} is not prepared")));
        };
        // SAFETY: freeing a buffer forgets the programs that use it, so all pointers are valid, and `&mut self` keeps
        // the host out of the buffers.
        unsafe { program.check_indices(counts)? };
        program.rewind();
        let threads = self.watch.before_run(program.is_elastic());
        let (kernels, pool, halt) = (self.cpu.kernels(), &mut self.pool, Halt::new(cancel));
        let job = AssertUnwindSafe(|| {
            // SAFETY: as above; the indices were checked with these counts, and `run` returns after all threads did.
            pool.run_on(threads, |team| unsafe { program.run(kernels, team, counts, &halt) });
        });
        let outcome = catch_unwind(job);
        self.watch.after_run();
        outcome.map_err(|panic| device_error(format!("a kernel panicked: {}", text_of(&*panic))))?;
        if halt.was_cancelled() { Err(BackendError::Cancelled) } else { Ok(()) }
    }
}

/// The bytes of a place.
fn part<'a>(
    buffers: &'a [Option<AlignedBuf>],
    weights: &'a Weights,
    place: &Binding,
) -> Result<&'a [u8], BackendError> {
    match *place {
        Binding::Weight(id) => {
            let weight = weights.get(id).map(Weight::as_slice);
            weight.ok_or_else(|| device_error(format!("{id} is not registered")))
        }
        Binding::Buffer(window) => {
            let bytes = buffers.get(window.id.index()).and_then(Option::as_ref).map(AlignedBuf::as_slice);
            let bytes = bytes.unwrap_or_default();
            let (offset, len) = exec::bounds(window, bytes.len())?;
            Ok(&bytes[offset..offset + len])
        }
    }
}

fn counter_of(kind: BufKind) -> usize {
    match kind {
        BufKind::Pool => 0,
        BufKind::Kv => 1,
        BufKind::Scratch => 2,
    }
}

/// Puts `item` into the first free slot.
fn insert<T>(slots: &mut Vec<Option<T>>, item: T) -> usize {
    let index = slots.iter().position(Option::is_none).unwrap_or(slots.len());
    if index == slots.len() {
        slots.push(None);
    }
    slots[index] = Some(item);
    index
}

fn device_error(what: String) -> BackendError {
    BackendError::Device { backend: NAME.to_owned(), what }
}

/// What a panic said.
fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;
    use minfer_testkit::runner::{Runner, Session};
    use minfer_testkit::transformer::Transformer;

    #[test]
    fn a_block_needs_five_barriers_to_decode_and_fourteen_for_a_batch() {
        for (post_norms, rung, a_block) in [(false, 1, 5), (true, 1, 5), (false, 32, 14)] {
            let barriers = [2, 3].map(|n_layers| {
                let model = Transformer { n_layers, post_norms, ..Transformer::TINY };
                let mut backend = CpuBackend::new(CpuSpec::detect(1)).unwrap();
                let mut session = Session::new(&mut backend);
                model.register(&mut session, 1).unwrap();
                Runner::new(&mut session, &model.graph(rung, 1).unwrap()).unwrap();
                backend.programs[0].as_ref().unwrap().barriers()
            });
            assert_eq!(barriers[1] - barriers[0], a_block, "rung {rung}");
        }
    }

    #[test]
    fn a_cancelled_run_is_an_error_and_the_next_one_runs() {
        let mut backend = CpuBackend::new(CpuSpec::detect(2)).unwrap();
        let mut session = Session::new(&mut backend);
        Transformer::TINY.register(&mut session, 1).unwrap();
        Runner::new(&mut session, &Transformer::TINY.graph(4, 1).unwrap()).unwrap();
        let counts = BatchCounts { tokens: 4, outputs: 1 };
        let cancel = CancelFlag::new();
        cancel.cancel();
        assert_eq!(backend.execute(SegmentId::new(0), counts, &cancel), Err(BackendError::Cancelled));
        cancel.reset();
        assert_eq!(backend.execute(SegmentId::new(0), counts, &cancel), Ok(()));
    }

    #[test]
    fn a_panic_of_a_worker_is_an_error_and_the_backend_lives_on() {
        let mut backend = CpuBackend::new(CpuSpec::detect(3)).unwrap();
        let segment = SegmentId::new(insert(&mut backend.programs, Program::panicking()));
        let counts = BatchCounts { tokens: 1, outputs: 1 };
        for _ in 0..3 {
            let error = backend.execute(segment, counts, &CancelFlag::new()).unwrap_err();
            assert_eq!(error.to_string(), "cpu: a kernel panicked: boom");
        }
    }
}
