//! The allocator: owns the backends and every byte they hold.

mod exact;

use std::collections::BTreeMap;
use std::sync::Arc;

use minfer_tensor::{Bytes, DType};

use exact::Exact;

use crate::allocplan::{Budget, class_size};
use crate::backend::{Backend, BackendId, BufId, BufKind, BufRef, DeviceSpec, WeightBytes, WeightCharge};
use crate::error::{Error, Result};
use crate::ir::{CNode, ComputeGraph, StateId, WeightDecl, WeightId};
use crate::ledger::{Category, Charges, Ledger};
use crate::mapping::{Mapping, Walk};
use crate::offload::OffloadPlan;
use crate::report::MemoryReport;
use crate::scheduler::Assignment;
use crate::slots::Slots;

/// A backend and what its account has bought.
struct Device {
    backend: Box<dyn Backend>,
    slots: Slots,
    /// One buffer per crossing into this backend, by order of crossing (rule A11).
    staging: Vec<Exact>,
    scratch: Option<Exact>,
}

/// Owns the backends of a session, the CPU last. All memory is asked for here, after the ledger has admitted it.
pub struct GraphAllocator {
    devices: Vec<Device>,
    ledger: Ledger,
    kv: BTreeMap<StateId, BufRef>,
    /// Whether a plan was committed: from then on nothing is created.
    committed: bool,
}

impl std::fmt::Debug for GraphAllocator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GraphAllocator").field("ledger", &self.ledger).finish_non_exhaustive()
    }
}

impl GraphAllocator {
    /// Takes the backends, the CPU last, each with the budget that was decided before anything was allocated there
    /// (rule A2): the device is never asked again. Panics without a backend.
    pub fn new(backends: Vec<(Box<dyn Backend>, Budget)>) -> Self {
        assert!(!backends.is_empty(), "a session has at least a CPU");
        let ledger = Ledger::new(backends.iter().map(|(b, budget)| (b.spec().name().to_owned(), *budget)));
        let own = |backend| Device { backend, slots: Slots::default(), staging: Vec::new(), scratch: None };
        let devices = backends.into_iter().map(|(backend, _)| own(backend)).collect();
        Self { devices, ledger, kv: BTreeMap::new(), committed: false }
    }

    /// All backends, the CPU last.
    pub fn ids(&self) -> impl Iterator<Item = BackendId> + use<> {
        (0..self.devices.len()).map(BackendId::new)
    }

    /// The CPU.
    pub fn cpu(&self) -> BackendId {
        BackendId::new(self.devices.len() - 1)
    }

    /// A backend. Panics if it is of another session.
    pub fn backend(&self, id: BackendId) -> &dyn Backend {
        self.devices[id.index()].backend.as_ref()
    }

    /// A backend, to run something on it.
    pub(crate) fn backend_mut(&mut self, id: BackendId) -> &mut dyn Backend {
        self.devices[id.index()].backend.as_mut()
    }

    /// The description of a backend.
    pub fn spec(&self, id: BackendId) -> &Arc<dyn DeviceSpec> {
        self.backend(id).spec()
    }

    /// The device that a plan offers to nodes of `layer`, if there is one: the first backend, unless that is the CPU.
    pub fn device_for(&self, offload: &OffloadPlan, layer: Option<u32>) -> Option<BackendId> {
        (self.devices.len() > 1 && offload.allows_layer(layer)).then(|| BackendId::new(0))
    }

    /// Whether a backend may run a node: it has a kernel, and it is the CPU or the plan gives it the block (rule O5).
    pub fn supports_for(
        &self,
        backend: BackendId,
        node: &CNode,
        operands: &[DType],
        offload: &OffloadPlan,
    ) -> bool {
        let allowed = backend == self.cpu() || offload.allows_layer(node.layer);
        allowed && self.spec(backend).supports_op(node, operands)
    }

    /// Replaces the budget of a backend. What is charged already stays charged.
    pub fn set_memory_budget(&mut self, backend: BackendId, bytes: Bytes) {
        self.ledger.set_budget(backend, Budget::Limited(bytes));
    }

    /// What a backend is charged, by category.
    pub fn charged(&self, backend: BackendId) -> Charges {
        self.ledger.charged(backend)
    }

    /// What a backend holds (rule A5), asked from the backend itself and not from the ledger (rule B4): weights, KV, pool
    /// and scratch. That both agree is asserted in debug builds.
    pub fn memory_report(&self, backend: BackendId) -> MemoryReport {
        let charged = self.ledger.charged(backend);
        let Device { backend: device, slots, .. } = &self.devices[backend.index()];
        let report = MemoryReport {
            backend: device.spec().name().to_owned(),
            budget: self.ledger.budget(backend),
            weights_bytes: device.weights_bytes(),
            mapped_bytes: charged.get(Category::MappedWeights),
            kv_bytes: device.buffer_bytes(BufKind::Kv),
            pool_bytes: device.buffer_bytes(BufKind::Pool),
            staging_bytes: charged.get(Category::Staging),
            scratch_bytes: device.buffer_bytes(BufKind::Scratch),
            host_bytes: charged.get(Category::Host),
            live_bytes: slots.live_bytes(),
            peak_live_bytes: slots.peak_live_bytes(),
            idle_slots: slots.idle_len(),
            reserved_classes: slots.reserved().iter().map(|(&class, &n)| (class, n)).collect(),
        };
        debug_assert!(report.agrees_with(&charged), "{report:?} is held, {charged:?} is charged");
        report
    }

    /// A place for `bytes` in a buffer of their class: an idle one, or a new one if the budget holds it (rule A1).
    ///
    /// The place is the caller's until [`release`](Self::release).
    pub fn alloc_in_pool(&mut self, backend: BackendId, bytes: Bytes) -> Result<BufRef> {
        let class = class_size(bytes).ok_or_else(|| Error::size("a pool buffer"))?;
        let id = self.alloc_class_in_pool(backend, class)?;
        Ok(BufRef { backend, id, offset: Bytes::ZERO, len: bytes })
    }

    /// The smallest idle buffer of a class, which costs nothing and can't be refused, or a new one.
    pub fn alloc_class_in_pool(&mut self, backend: BackendId, class: Bytes) -> Result<BufId> {
        if let Some(id) = self.devices[backend.index()].slots.take(class) {
            return Ok(id);
        }
        self.reserve_class(backend, class)?;
        let taken = self.devices[backend.index()].slots.take(class);
        Ok(taken.expect("a buffer of the class was just reserved"))
    }

    /// Gives a place back to the pool. Without effect on one that is idle already.
    pub fn release(&mut self, place: BufRef) {
        self.devices[place.backend.index()].slots.release(place.id);
    }

    /// Adds an idle buffer of a class.
    pub(crate) fn reserve_class(&mut self, backend: BackendId, class: Bytes) -> Result<()> {
        let id = self.create(backend, BufKind::Pool, Category::Pool, class)?;
        self.devices[backend.index()].slots.reserve(class, id);
        Ok(())
    }

    /// Makes a weight available on a backend and charges what its description says (rule A6).
    pub fn register_weight(
        &mut self,
        backend: BackendId,
        id: WeightId,
        decl: &WeightDecl,
        data: WeightBytes,
    ) -> Result<()> {
        let charge = self.weight_charge(backend, decl, data.is_mapped());
        let reservation = self.ledger.reserve(backend, charge.into())?;
        self.devices[backend.index()].backend.register_weight(id, decl, data)?;
        reservation.commit();
        Ok(())
    }

    pub(crate) fn weight_charge(&self, backend: BackendId, decl: &WeightDecl, mapped: bool) -> WeightCharge {
        self.spec(backend).weight_bytes(decl, mapped)
    }

    /// Places every value of a graph (rules A7 to A9). What the last graph held is released first.
    ///
    /// Once a plan was committed this creates no buffer: it fails on a graph that the plan doesn't cover. On an error
    /// nothing stays placed.
    pub fn alloc_graph(&mut self, graph: &ComputeGraph, assignment: &Assignment) -> Result<Mapping> {
        self.release_graph();
        let mapped = Walk::new(self, graph, assignment).run();
        if mapped.is_err() {
            self.release_graph();
        }
        mapped
    }

    /// Releases what the last graph held; its buffers stay reserved.
    pub fn release_graph(&mut self) {
        self.devices.iter_mut().for_each(|device| device.slots.release_all());
    }

    /// Fills the place of an input; `data` is exactly as long as the place (rule A7).
    pub fn fill_input(&mut self, name: &str, place: BufRef, data: &[u8]) -> Result<()> {
        Error::check_len(|| format!("input \"{}\"", name.escape_debug()), place, data.len())?;
        Ok(self.backend_mut(place.backend).write_host_window(place, data)?)
    }

    /// Releases the buffers of a backend that no node from `at` on needs.
    pub(crate) fn sweep(&mut self, at: usize) {
        self.devices.iter_mut().for_each(|device| device.slots.sweep(at));
    }

    pub(crate) fn slots_mut(&mut self, backend: BackendId) -> &mut Slots {
        &mut self.devices[backend.index()].slots
    }

    /// The only place where a buffer is created: the ledger first, then the device.
    fn create(
        &mut self,
        backend: BackendId,
        kind: BufKind,
        category: Category,
        bytes: Bytes,
    ) -> Result<BufId> {
        let device = &mut self.devices[backend.index()].backend;
        if self.committed {
            return Err(Error::Unplanned { backend: device.spec().name().to_owned(), category, bytes });
        }
        let (name, max) = (device.spec().name(), device.spec().max_buffer_bytes());
        if bytes > max {
            return Err(Error::TooLarge { backend: name.to_owned(), category, bytes, max });
        }
        let reservation = self.ledger.reserve(backend, Charges::of(category, bytes))?;
        let id = device.alloc_buffer(kind, bytes)?;
        reservation.commit();
        Ok(id)
    }
}
