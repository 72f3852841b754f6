//! Buffers of values: one device buffer for each, counted where it is created.

use std::ops::Range;

use minfer_graph::{BackendError, BufId, BufKind, BufRef};
use minfer_tensor::Bytes;
use wgpu::BufferUsages;

use crate::device::Gpu;
use crate::error::outside;
use crate::spec::WORD;
use crate::staging::Staging;

/// A buffer and what it is charged as.
#[derive(Debug)]
struct Slot {
    buffer: wgpu::Buffer,
    kind: BufKind,
    /// Bytes that were asked for; the device buffer has up to three more.
    len: u64,
}

/// All buffers of a backend, by [`BufId`].
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    slots: Vec<Option<Slot>>,
    generation: u64,
}

impl Buffers {
    /// Creates a buffer of zeros, which are written now: what was admitted is resident from here on (rule B4).
    pub(crate) fn create(&mut self, gpu: &Gpu, kind: BufKind, bytes: Bytes) -> Result<BufId, BackendError> {
        let usage = BufferUsages::STORAGE | BufferUsages::COPY_DST | BufferUsages::COPY_SRC;
        let len = bytes.get();
        let Some(size) = len.max(WORD).checked_next_multiple_of(WORD) else {
            return Err(gpu.error("a buffer of more bytes than there are numbers"));
        };
        let buffer = gpu.create_buffer(&format!("{kind:?}"), size, usage)?;
        let mut encoder = gpu.encoder();
        encoder.clear_buffer(&buffer, 0, None);
        gpu.submit(encoder)?;
        let index = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        if index == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[index] = Some(Slot { buffer, kind, len });
        self.generation += 1;
        Ok(BufId::new(index))
    }

    /// Forgets a buffer; whether it was there.
    pub(crate) fn free(&mut self, id: BufId) -> bool {
        let freed = self.slots.get_mut(id.index()).and_then(Option::take).is_some();
        self.generation += u64::from(freed);
        freed
    }

    /// How often a buffer was created or freed (rule A9).
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Bytes of the device buffers of a category.
    pub(crate) fn bytes(&self, kind: BufKind) -> Bytes {
        let of_kind = self.slots.iter().flatten().filter(|slot| slot.kind == kind);
        of_kind.map(|slot| Bytes::new(slot.buffer.size())).sum()
    }

    /// The device buffer, and its length as asked for.
    pub(crate) fn get(&self, id: BufId) -> Option<(&wgpu::Buffer, u64)> {
        let slot = self.slots.get(id.index())?.as_ref()?;
        Some((&slot.buffer, slot.len))
    }

    /// A window as a range of its buffer, which it lies in.
    pub(crate) fn window(&self, window: BufRef) -> Result<(&wgpu::Buffer, Range<u64>), BackendError> {
        let slot = self.get(window.id);
        let (start, end) = (window.offset, window.offset.checked_add(window.len));
        match (slot, end) {
            (Some((buffer, len)), Some(end)) if end.get() <= len => Ok((buffer, start.get()..end.get())),
            _ => {
                let there = Bytes::new(slot.map_or(0, |(_, len)| len));
                Err(outside(window.id, there, window.offset.saturating_add(window.len)))
            }
        }
    }

    /// The first `len` bytes of a window, as a range of its buffer.
    pub(crate) fn start_of(
        &self,
        window: BufRef,
        len: usize,
    ) -> Result<(&wgpu::Buffer, Range<u64>), BackendError> {
        let (buffer, range) = self.window(window)?;
        let len = len as u64;
        if len > range.end - range.start {
            return Err(outside(window.id, window.len, Bytes::new(len)));
        }
        Ok((buffer, range.start..range.start + len))
    }

    /// Writes `data` to the start of a window.
    pub(crate) fn write(
        &self,
        gpu: &Gpu,
        staging: &mut Staging,
        window: BufRef,
        data: &[u8],
    ) -> Result<(), BackendError> {
        let (buffer, range) = self.start_of(window, data.len())?;
        let ends = self.get(window.id).is_some_and(|(_, len)| range.end == len);
        if range.start.is_multiple_of(WORD) && (ends || range.end.is_multiple_of(WORD)) {
            return staging.write(gpu, buffer, range.start, data);
        }
        // The device copies whole words; what else is in the first and the last one stays as it is.
        let first = range.start / WORD * WORD;
        let mut words = vec![0; (range.end.next_multiple_of(WORD) - first) as usize];
        staging.read(gpu, buffer, first, &mut words)?;
        words[(range.start - first) as usize..][..data.len()].copy_from_slice(data);
        staging.write(gpu, buffer, first, &words)
    }
}
