//! Where the values of a segment lie: bindings become checked windows of device buffers.

use std::ops::Range;

use minfer_graph::{BackendError, Binding, BufId, BufRef, NodeId, Op, Segment, WeightId};

use crate::buffer::Buffers;
use crate::error::{outside, refused};
use crate::spec::WORD;
use crate::weights::{Weight, Weights};

/// Whose memory a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Home {
    Buffer(BufId),
    Weight(WeightId),
}

/// Memory of one value: a window of a device buffer, which kernels see whole.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) buffer: wgpu::Buffer,
    home: Home,
    /// First byte.
    offset: u64,
    len: u64,
}

impl Place {
    fn is_same(&self, other: &Self) -> bool {
        (self.home, self.offset, self.len) == (other.home, other.offset, other.len)
    }

    fn overlaps(&self, other: &Self) -> bool {
        let apart = self.offset + self.len <= other.offset || other.offset + other.len <= self.offset;
        self.home == other.home && !apart
    }

    /// Whether it is in a weight, whose buffers no kernel writes.
    pub(super) fn is_weight(&self) -> bool {
        matches!(self.home, Home::Weight(_))
    }

    /// Its bytes.
    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    /// Its first byte, for the kernel of a node.
    pub(super) fn byte(&self, user: NodeId) -> Result<u32, BackendError> {
        u32::try_from(self.offset).map_err(|_| refused(user, "reaches further than kernels count"))
    }

    /// Its first byte, which is a word's.
    pub(super) fn word_aligned_byte(&self, user: NodeId) -> Result<u32, BackendError> {
        self.aligned(user)?;
        self.byte(user)
    }

    /// Its first element of four bytes.
    pub(super) fn element(&self, user: NodeId) -> Result<u32, BackendError> {
        self.aligned(user)?;
        Ok(self.byte(user)? / WORD as u32)
    }

    fn aligned(&self, user: NodeId) -> Result<(), BackendError> {
        if self.offset.is_multiple_of(WORD) {
            return Ok(());
        }
        Err(refused(user, &format!("has a value at {}, not a multiple of {WORD}", self.offset)))
    }
}

/// Some rows of a value and where they lie.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// By the value's own count.
    pub(super) rows: Range<usize>,
    pub(super) place: Place,
}

/// A segment, and the memory of the backend that it is bound to.
pub(crate) struct Places<'a> {
    pub(super) segment: Segment<'a>,
    buffers: &'a Buffers,
    weights: &'a Weights,
    /// Buffers that were resolved.
    pub(super) used: Vec<BufId>,
}

impl<'a> Places<'a> {
    /// Nothing resolved yet.
    pub(crate) fn new(segment: Segment<'a>, buffers: &'a Buffers, weights: &'a Weights) -> Self {
        Self { segment, buffers, weights, used: Vec::new() }
    }

    /// A value that kernels read from one buffer.
    pub(super) fn readable(&mut self, id: NodeId) -> Result<Place, BackendError> {
        let [part] = self.parts(id)?.try_into().map_err(|_| refused(id, "lies in several buffers"))?;
        Ok(part.place)
    }

    /// A value that kernels read, in as many parts as it has buffers.
    pub(super) fn parts(&mut self, id: NodeId) -> Result<Vec<Part>, BackendError> {
        match self.binding(id)? {
            Binding::Weight(_) => self.in_weight(id),
            Binding::Buffer(window) => {
                let rows = 0..self.segment.graph.node(id).shape.rows;
                Ok(vec![Part { rows, place: self.in_buffer(id, window)? }])
            }
        }
    }

    /// A value that kernels write.
    pub(super) fn writable(&mut self, id: NodeId) -> Result<Place, BackendError> {
        match self.binding(id)? {
            Binding::Buffer(window) => self.in_buffer(id, window),
            Binding::Weight(weight) => Err(refused(id, &format!("would overwrite {weight}"))),
        }
    }

    /// The result of a node. It overlaps no operand, except that it may be exactly one of `replaces`.
    pub(super) fn result(&mut self, id: NodeId, replaces: &[NodeId]) -> Result<Place, BackendError> {
        let place = self.writable(id)?;
        for &input in &self.segment.graph.node(id).inputs {
            for part in self.parts(input)? {
                let replaced = replaces.contains(&input) && part.place.is_same(&place);
                if part.place.overlaps(&place) && !replaced {
                    return Err(refused(id, &format!("would overwrite its operand {input}")));
                }
            }
        }
        Ok(place)
    }

    fn binding(&self, id: NodeId) -> Result<Binding, BackendError> {
        let binding = self.segment.bindings.get(id.index()).copied().flatten();
        binding.ok_or_else(|| refused(id, "has no place in memory"))
    }

    fn in_buffer(&mut self, id: NodeId, window: BufRef) -> Result<Place, BackendError> {
        let (buffer, range) = self.buffers.window(window)?;
        let len = self.segment.graph.node(id).nbytes();
        if len > window.len {
            return Err(outside(window.id, window.len, len));
        }
        self.used.push(window.id);
        let home = Home::Buffer(window.id);
        Ok(Place { buffer: buffer.clone(), home, offset: range.start, len: len.get() })
    }

    /// A weight or a view of one.
    fn in_weight(&self, id: NodeId) -> Result<Vec<Part>, BackendError> {
        let graph = self.segment.graph;
        let Op::Weight(weight) = graph.node(graph.storage_of(id)).op else {
            return Err(refused(id, "is bound to a weight and is none"));
        };
        let Some(registered) = self.weights.get(weight) else {
            return Err(refused(id, &format!("reads {weight}, which was not registered")));
        };
        let node = graph.node(id);
        let view = View {
            first: graph.offset_in_storage(id).get(),
            rows: node.shape.rows,
            row_bytes: node.dtype.row_bytes(node.shape.cols).unwrap_or_default().get(),
        };
        view.parts(weight, registered)
            .ok_or_else(|| refused(id, &format!("shows what is not in {weight}, or cuts its rows")))
    }
}

/// What a view shows of a weight's bytes.
struct View {
    first: u64,
    rows: usize,
    row_bytes: u64,
}

impl View {
    /// `None` if it shows more than there is, or rows that the weight's chunks cut.
    fn parts(&self, id: WeightId, weight: &Weight) -> Option<Vec<Part>> {
        let mut parts = Vec::new();
        let end = self.first.checked_add(self.row_bytes.checked_mul(self.rows as u64)?)?;
        for chunk in &weight.chunks {
            let bytes = chunk.rows.start as u64 * weight.row_bytes..chunk.rows.end as u64 * weight.row_bytes;
            let shown = self.first.max(bytes.start)..end.min(bytes.end);
            if shown.is_empty() {
                continue;
            }
            let rows = self.row(shown.start)?..self.row(shown.end)?;
            let (offset, len) = (shown.start - bytes.start, shown.end - shown.start);
            let place = Place { buffer: chunk.buffer.clone(), home: Home::Weight(id), offset, len };
            parts.push(Part { rows, place });
        }
        let complete = parts.last().is_some_and(|part| part.rows.end == self.rows);
        complete.then_some(parts)
    }

    /// The row that starts at a byte of the weight.
    fn row(&self, byte: u64) -> Option<usize> {
        let bytes = byte - self.first;
        let row = bytes.checked_div(self.row_bytes).filter(|row| row * self.row_bytes == bytes)?;
        usize::try_from(row).ok()
    }
}
