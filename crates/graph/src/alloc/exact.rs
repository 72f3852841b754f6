//! Buffers that are as long as they were asked for and live from the commit on: states, staging, scratch.

use minfer_tensor::Bytes;

use super::GraphAllocator;
use crate::backend::{BackendId, BufId, BufKind, BufRef};
use crate::error::{Error, Result};
use crate::ir::{StateDecl, StateId};
use crate::ledger::{Category, Charges, Reservation};
use crate::plan::MemoryPlan;

/// A buffer of exactly the bytes that it was asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exact {
    id: BufId,
    bytes: Bytes,
}

impl GraphAllocator {
    /// Creates everything that a plan asks for, at once: a graph that the plan covers finds all it needs, and nothing is
    /// created afterwards (rule B2).
    pub fn commit(&mut self, plan: &MemoryPlan) -> Result<()> {
        let scheduler = plan.scheduler();
        for (backend, planned) in self.ids().zip(plan.backends()) {
            self.take_fixed(backend, planned.fixed)?;
        }
        for (index, decl) in scheduler.states().iter().enumerate() {
            let id = StateId::new(index);
            self.create_state(scheduler.state_home(id), id, decl)?;
        }
        for (backend, planned) in self.ids().zip(plan.backends()) {
            for &(class, n) in &planned.classes {
                let held = self.devices[backend.index()].slots.reserved().get(&class).copied().unwrap_or(0);
                for _ in held..n {
                    self.reserve_class(backend, class)?;
                }
            }
            for (nth, &bytes) in planned.staging.iter().enumerate() {
                self.staging(backend, nth, bytes)?;
            }
            self.scratch(backend, planned.scratch)?;
            self.charge_host(backend, planned.host)?;
        }
        self.committed = true;
        Ok(())
    }

    /// Creates a persistent region, whole and exact (rule B2). Without effect if it exists.
    pub fn create_state(&mut self, backend: BackendId, id: StateId, decl: &StateDecl) -> Result<()> {
        if self.kv.contains_key(&id) {
            return Ok(());
        }
        let len = decl.nbytes().ok_or_else(|| Error::size(decl.name.as_str()))?;
        let buffer = self.create(backend, BufKind::Kv, Category::Kv, self.whole(backend, len)?)?;
        self.kv.insert(id, BufRef { backend, id: buffer, offset: Bytes::ZERO, len });
        Ok(())
    }

    /// Where a state lies, once it was created.
    pub fn state(&self, id: StateId) -> Option<BufRef> {
        self.kv.get(&id).copied()
    }

    /// The staging buffer of the `nth` crossing into a backend: at least `bytes` long, the place exactly (rule A11).
    pub(crate) fn staging(&mut self, backend: BackendId, nth: usize, bytes: Bytes) -> Result<BufRef> {
        let old = self.devices[backend.index()].staging.get(nth).copied();
        let buffer = self.grow(backend, BufKind::Pool, Category::Staging, old, bytes)?;
        let staging = &mut self.devices[backend.index()].staging;
        debug_assert!(nth <= staging.len(), "crossings are numbered from 0");
        match staging.get_mut(nth) {
            Some(slot) => *slot = buffer,
            None => staging.push(buffer),
        }
        Ok(BufRef { backend, id: buffer.id, offset: Bytes::ZERO, len: bytes })
    }

    /// The working memory of a backend, at least `bytes` long; `None` for no bytes.
    pub(crate) fn scratch(&mut self, backend: BackendId, bytes: Bytes) -> Result<Option<BufRef>> {
        if bytes == Bytes::ZERO {
            return Ok(None);
        }
        let old = self.devices[backend.index()].scratch;
        let buffer = self.grow(backend, BufKind::Scratch, Category::Scratch, old, bytes)?;
        self.devices[backend.index()].scratch = Some(buffer);
        Ok(Some(BufRef { backend, id: buffer.id, offset: Bytes::ZERO, len: bytes }))
    }

    /// Sizes of the staging buffers, by order of crossing.
    pub(crate) fn staging_sizes(&self, backend: BackendId) -> Vec<Bytes> {
        self.devices[backend.index()].staging.iter().map(|exact| exact.bytes).collect()
    }

    /// Charges memory that the session itself holds for a backend.
    pub(crate) fn charge_host(&mut self, backend: BackendId, bytes: Bytes) -> Result<()> {
        self.ledger.reserve(backend, Charges::of(Category::Host, bytes)).map(Reservation::commit)?;
        Ok(())
    }

    /// Lets a backend take what it needs for itself. Without effect for no bytes: a backend that runs nothing.
    fn take_fixed(&mut self, backend: BackendId, bytes: Bytes) -> Result<()> {
        if bytes == Bytes::ZERO {
            return Ok(());
        }
        let reservation = self.ledger.reserve(backend, Charges::of(Category::Scratch, bytes))?;
        self.devices[backend.index()].backend.commit_fixed()?;
        reservation.commit();
        Ok(())
    }

    /// The length of a buffer that holds `bytes`: whole units of the device.
    fn whole(&self, backend: BackendId, bytes: Bytes) -> Result<Bytes> {
        let align = self.spec(backend).buffer_align();
        bytes.checked_align_up(align).ok_or_else(|| Error::size("a buffer"))
    }

    /// A buffer of at least `bytes`: the old one, or a new one in its place.
    fn grow(
        &mut self,
        backend: BackendId,
        kind: BufKind,
        category: Category,
        old: Option<Exact>,
        bytes: Bytes,
    ) -> Result<Exact> {
        if let Some(exact) = old.filter(|exact| exact.bytes >= bytes) {
            return Ok(exact);
        }
        let bytes = self.whole(backend, bytes)?;
        let id = self.create(backend, kind, category, bytes)?;
        if let Some(exact) = old {
            self.devices[backend.index()].backend.free_buffer(exact.id);
            self.ledger.release(backend, Charges::of(category, exact.bytes));
        }
        Ok(Exact { id, bytes })
    }
}
