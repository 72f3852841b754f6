//! Where the values of a segment lie in memory: bindings become checked pointers.

use minfer_graph::{BackendError, Binding, BufId, BufRef, NodeId, Op, Segment};
use minfer_tensor::{Bytes, DType};

use super::order::Span;
use crate::buffer::AlignedBuf;
use crate::kernels::{ALIGN, ROW_UNIT};
use crate::spec::NAME;
use crate::weights::{Weight, Weights, element_align};

/// Memory of one value. A weight's is never written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// First byte.
    pub(crate) first: *mut u8,
    /// Bytes.
    pub(crate) len: usize,
}

impl Place {
    /// Its addresses.
    pub(crate) fn span(self) -> Span {
        Span { start: self.first.addr(), len: self.len }
    }

    /// `len` of its bytes from `offset` on. Panics beyond its end.
    pub(crate) fn part(self, offset: usize, len: usize) -> Self {
        assert!(offset <= self.len && len <= self.len - offset, "a part of a place lies within it");
        Self { first: self.first.wrapping_add(offset), len }
    }
}

/// A segment, and the memory of the backend that it is bound to.
pub(crate) struct Places<'a> {
    pub(crate) segment: Segment<'a>,
    pub(crate) buffers: &'a mut [Option<AlignedBuf>],
    pub(crate) weights: &'a Weights,
    /// Buffers and weights that were resolved.
    pub(crate) used_buffers: Vec<BufId>,
    pub(crate) used_weights: Vec<Weight>,
}

impl<'a> Places<'a> {
    /// Nothing resolved yet.
    pub(crate) fn new(
        segment: Segment<'a>,
        buffers: &'a mut [Option<AlignedBuf>],
        weights: &'a Weights,
    ) -> Self {
        Self { segment, buffers, weights, used_buffers: Vec::new(), used_weights: Vec::new() }
    }

    /// Where a value lies that kernels may write: in a buffer, whole and aligned.
    pub(crate) fn writable(&mut self, id: NodeId) -> Result<Place, BackendError> {
        match self.binding(id)? {
            Binding::Buffer(window) => self.value_in(id, window),
            Binding::Weight(weight) => Err(refused(id, &format!("would overwrite {weight}"))),
        }
    }

    /// Where a value lies that kernels read: in a buffer or a weight.
    pub(crate) fn readable(&mut self, id: NodeId) -> Result<Place, BackendError> {
        match self.binding(id)? {
            Binding::Buffer(window) => self.value_in(id, window),
            Binding::Weight(_) => self.in_weight(id),
        }
    }

    /// The working memory, if the segment has any.
    pub(crate) fn scratch(&mut self) -> Result<Option<Place>, BackendError> {
        let Some(window) = self.segment.scratch else { return Ok(None) };
        self.window(window, ALIGN).map(Some)
    }

    fn binding(&self, id: NodeId) -> Result<Binding, BackendError> {
        let binding = self.segment.bindings.get(id.index()).copied().flatten();
        binding.ok_or_else(|| refused(id, "has no place in memory"))
    }

    fn value_in(&mut self, id: NodeId, window: BufRef) -> Result<Place, BackendError> {
        if self.segment.scratch.is_some_and(|scratch| scratch.id == window.id) {
            return Err(refused(id, "lies in the working memory"));
        }
        let node = self.segment.graph.node(id);
        let place = self.window(window, element_align(node.dtype))?;
        let needed = node.nbytes();
        match needed.to_usize() {
            Some(needed) if needed <= place.len => Ok(place.part(0, needed)),
            _ => Err(outside(window.id, window.len, needed)),
        }
    }

    fn window(&mut self, window: BufRef, align: usize) -> Result<Place, BackendError> {
        let Some(buffer) = self.buffers.get_mut(window.id.index()).and_then(Option::as_mut) else {
            return Err(outside(window.id, Bytes::ZERO, window.len));
        };
        let (offset, len) = bounds(window, buffer.len())?;
        if !offset.is_multiple_of(align) {
            let what = format!("{} at offset {offset}: expected a multiple of {align}", window.id);
            return Err(BackendError::Device { backend: NAME.to_owned(), what });
        }
        self.used_buffers.push(window.id);
        Ok(Place { first: buffer.as_mut_ptr(), len: buffer.len() }.part(offset, len))
    }

    /// Of a packed weight, or some of its rows: which row of its first panel is the first one.
    pub(crate) fn row_in_panel(&self, id: NodeId) -> Option<usize> {
        let graph = self.segment.graph;
        let Op::Weight(weight) = graph.node(graph.storage_of(id)).op else { return None };
        let Some(&Weight::Packed { row_bytes, .. }) = self.weights.get(weight) else { return None };
        Some(graph.offset_in_storage(id).to_usize()? / row_bytes.max(1) % ROW_UNIT)
    }

    /// A weight or a view of one; of a packed one from the start of the first row's panel.
    fn in_weight(&mut self, id: NodeId) -> Result<Place, BackendError> {
        let graph = self.segment.graph;
        let Op::Weight(weight) = graph.node(graph.storage_of(id)).op else {
            return Err(refused(id, "is bound to a weight and is none"));
        };
        let Some(registered) = self.weights.get(weight) else {
            return Err(refused(id, &format!("reads {weight}, which was not registered")));
        };
        let bytes = registered.as_slice();
        let window = (graph.offset_in_storage(id).to_usize(), graph.node(id).nbytes().to_usize());
        let (Some(offset), Some(len)) = window else { return Err(refused(id, "has no size")) };
        if offset.checked_add(len).is_none_or(|end| end > bytes.len()) {
            return Err(refused(
                id,
                &format!("shows {len} bytes from {offset} of {} of {weight}", bytes.len()),
            ));
        }
        let offset = match *registered {
            Weight::InPlace(_) | Weight::Copied(_) => offset,
            Weight::Packed { row_bytes, .. } => {
                if len != graph.node(id).shape.rows.saturating_mul(row_bytes)
                    || offset % row_bytes.max(1) != 0
                {
                    return Err(refused(
                        id,
                        &format!("shows other rows than those of {weight}, which is packed"),
                    ));
                }
                offset - offset % (ROW_UNIT * row_bytes.max(1))
            }
        };
        self.used_weights.push(registered.clone());
        Ok(Place { first: bytes.as_ptr().cast_mut(), len: bytes.len() }.part(offset, len))
    }
}

/// Offset and length of a window in a buffer of `available` bytes.
pub(crate) fn bounds(window: BufRef, available: usize) -> Result<(usize, usize), BackendError> {
    let end = window.offset.checked_add(window.len).and_then(Bytes::to_usize);
    match (window.offset.to_usize(), window.len.to_usize(), end) {
        (Some(offset), Some(len), Some(end)) if end <= available => Ok((offset, len)),
        _ => Err(outside(window.id, Bytes::from(available), window.offset.saturating_add(window.len))),
    }
}

/// An access beyond a buffer's bytes.
pub(crate) fn outside(buffer: BufId, expected: Bytes, found: Bytes) -> BackendError {
    BackendError::Window { backend: NAME.to_owned(), buffer, expected, found }
}

/// A segment that doesn't hold together: a fault of whoever placed it.
pub(crate) fn refused(id: NodeId, what: &str) -> BackendError {
    BackendError::Device { backend: NAME.to_owned(), what: format!("{id} {what}") }
}

/// An operation without a kernel for its operand.
pub(crate) fn unsupported(op: &Op, dtype: DType) -> BackendError {
    BackendError::Unsupported { backend: NAME.to_owned(), op: op.name(), dtype }
}
