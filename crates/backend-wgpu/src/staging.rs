//! The only way of bytes between host and device: two halves of an upload buffer that are filled in turn, and one buffer
//! for what comes back. wgpu's own uploads would take memory that nobody charges, and lose the device for want of it.
//!
//! A write is a copy into mapped memory and a note; the notes become the first commands of whatever is submitted next.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use minfer_graph::BackendError;
use wgpu::{BufferUsages, MapMode};

use crate::device::Gpu;
use crate::error::one_line;
use crate::spec::{READBACK_BYTES, UPLOAD_BYTES, WORD};

/// Mapped ranges start at multiples of this.
const MAP_ALIGN: u64 = wgpu::MAP_ALIGNMENT;
const HALF: u64 = UPLOAD_BYTES / 2;
/// Writes that wait for a submission; more are submitted on their own.
const MAX_NOTES: usize = 64;

/// A copy to record: from the current half to a buffer.
#[derive(Debug)]
struct Note {
    from: u64,
    to: wgpu::Buffer,
    offset: u64,
    len: u64,
}

/// The buffers, and what waits in them.
#[derive(Debug)]
pub(crate) struct Staging {
    halves: [Mappable; 2],
    /// The half that is filled now.
    current: usize,
    used: u64,
    notes: Vec<Note>,
    readback: Mappable,
}

impl Staging {
    /// Creates the buffers.
    pub(crate) fn new(gpu: &Gpu) -> Result<Self, BackendError> {
        let half = |_| Mappable::new(gpu, "upload", HALF, MapMode::Write);
        let [first, second] = [half(0)?, half(1)?];
        let readback = Mappable::new(gpu, "read back", READBACK_BYTES, MapMode::Read)?;
        let mut halves = [first, second];
        halves.iter_mut().for_each(|half| half.map(None));
        let notes = Vec::with_capacity(MAX_NOTES);
        Ok(Self { halves, current: 0, used: 0, notes, readback })
    }

    /// Writes `data` to `buffer` before anything that is submitted later. `offset` is a multiple of 4; if `data` isn't
    /// whole words, the rest of the last one becomes zero.
    pub(crate) fn write(
        &mut self,
        gpu: &Gpu,
        buffer: &wgpu::Buffer,
        offset: u64,
        data: &[u8],
    ) -> Result<(), BackendError> {
        gpu.check()?;
        let (mut offset, mut rest) = (offset, data);
        while !rest.is_empty() {
            if self.used == HALF || self.notes.len() == MAX_NOTES {
                self.submit(gpu, |_| ())?;
            }
            let room = (HALF - self.used).min(rest.len() as u64);
            let (piece, later) = rest.split_at(room as usize);
            self.note(gpu, buffer, offset, piece)?;
            (offset, rest) = (offset + room, later);
        }
        Ok(())
    }

    /// Puts a piece that fits into the current half.
    fn note(&mut self, gpu: &Gpu, to: &wgpu::Buffer, offset: u64, piece: &[u8]) -> Result<(), BackendError> {
        let half = &mut self.halves[self.current];
        half.wait(gpu)?;
        let len = (piece.len() as u64).next_multiple_of(WORD);
        let mut view = half
            .buffer
            .slice(self.used..self.used + len)
            .get_mapped_range_mut()
            .map_err(|error| gpu.error(&one_line(&format!("upload: {error}"))))?;
        view.slice(..piece.len()).copy_from_slice(piece);
        view.slice(piece.len()..).copy_from_slice(&[0; WORD as usize][..len as usize - piece.len()]);
        drop(view);
        self.notes.push(Note { from: self.used, to: to.clone(), offset, len });
        self.used += len.next_multiple_of(MAP_ALIGN);
        Ok(())
    }

    /// Submits all writes so far and then what `record` adds.
    pub(crate) fn submit(
        &mut self,
        gpu: &Gpu,
        record: impl FnOnce(&mut wgpu::CommandEncoder),
    ) -> Result<wgpu::SubmissionIndex, BackendError> {
        let mut encoder = gpu.encoder();
        let half = &mut self.halves[self.current];
        if self.notes.is_empty() {
            record(&mut encoder);
            return gpu.submit(encoder);
        }
        half.unmap();
        for Note { from, to, offset, len } in self.notes.drain(..) {
            encoder.copy_buffer_to_buffer(&half.buffer, from, &to, offset, len);
        }
        record(&mut encoder);
        let submitted = gpu.submit(encoder);
        half.map(submitted.as_ref().ok().cloned());
        (self.current, self.used) = (1 - self.current, 0);
        submitted
    }

    /// Reads `out.len()` bytes of `buffer` from any `offset` on, after everything that was written or submitted before.
    pub(crate) fn read(
        &mut self,
        gpu: &Gpu,
        buffer: &wgpu::Buffer,
        offset: u64,
        out: &mut [u8],
    ) -> Result<(), BackendError> {
        let mut offset = offset;
        for out in out.chunks_mut((READBACK_BYTES - 2 * WORD) as usize) {
            let (first, skipped) = (offset / WORD * WORD, (offset % WORD) as usize);
            let len = (skipped as u64 + out.len() as u64).next_multiple_of(WORD);
            let to = self.readback.buffer.clone();
            let submission =
                self.submit(gpu, |encoder| encoder.copy_buffer_to_buffer(buffer, first, &to, 0, len))?;
            self.readback.map(Some(submission));
            self.readback.wait(gpu)?;
            let view = to
                .slice(..len)
                .get_mapped_range()
                .map_err(|error| gpu.error(&one_line(&format!("read back: {error}"))))?;
            out.copy_from_slice(&view[skipped..skipped + out.len()]);
            drop(view);
            self.readback.unmap();
            offset += out.len() as u64;
        }
        Ok(())
    }
}

/// How far a mapping is.
const ASKED: u8 = 0;
const MAPPED: u8 = 1;
const FAILED: u8 = 2;

/// A buffer that the host sees between two submissions.
#[derive(Debug)]
struct Mappable {
    buffer: wgpu::Buffer,
    mode: MapMode,
    state: Arc<AtomicU8>,
    /// The submission that must be done first.
    after: Option<wgpu::SubmissionIndex>,
}

impl Mappable {
    fn new(gpu: &Gpu, what: &str, bytes: u64, mode: MapMode) -> Result<Self, BackendError> {
        let usage = match mode {
            MapMode::Write => BufferUsages::MAP_WRITE | BufferUsages::COPY_SRC,
            MapMode::Read => BufferUsages::MAP_READ | BufferUsages::COPY_DST,
        };
        let buffer = gpu.create_buffer(what, bytes, usage)?;
        Ok(Self { buffer, mode, state: Arc::new(AtomicU8::new(ASKED)), after: None })
    }

    /// Asks for the mapping, which is there once `after` is done.
    fn map(&mut self, after: Option<wgpu::SubmissionIndex>) {
        self.after = after;
        self.state.store(ASKED, Ordering::Release);
        let state = self.state.clone();
        self.buffer.slice(..).map_async(self.mode, move |mapped| {
            state.store(if mapped.is_ok() { MAPPED } else { FAILED }, Ordering::Release);
        });
    }

    /// Waits until the mapping is there.
    fn wait(&mut self, gpu: &Gpu) -> Result<(), BackendError> {
        if self.state.load(Ordering::Acquire) == ASKED {
            gpu.wait(self.after.take())?;
        }
        match self.state.load(Ordering::Acquire) {
            MAPPED => Ok(()),
            _ => gpu.check().and_then(|()| Err(gpu.error("a staging buffer could not be mapped"))),
        }
    }

    fn unmap(&mut self) {
        self.buffer.unmap();
    }
}
