//! Registered weights: copies of the file's bytes in device memory. A weight that is longer than what a kernel can see of
//! a buffer is cut between rows, one buffer a piece.

use std::collections::BTreeMap;
use std::ops::Range;

use minfer_graph::{BackendError, DeviceSpec, WeightBytes, WeightDecl, WeightId};
use minfer_tensor::Bytes;

use crate::device::Gpu;
use crate::error::{NAME, device};
use crate::spec::{WORD, WgpuSpec};
use crate::staging::Staging;

/// How the rows of a weight are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunks {
    rows: usize,
    row_bytes: u64,
    /// Rows of each chunk but the last.
    step: usize,
}

impl Chunks {
    /// Cuts a weight into chunks of at most `most` bytes; `None` if a row is longer, or isn't whole blocks, or
    /// there are no elements.
    pub(crate) fn new(decl: &WeightDecl, most: u64) -> Option<Self> {
        let row_bytes = decl.dtype.row_bytes(decl.shape.cols)?.get();
        let step = most.checked_div(row_bytes)?.min(decl.shape.rows as u64) as usize;
        (step > 0).then_some(Self { rows: decl.shape.rows, row_bytes, step })
    }

    /// Each chunk's rows.
    fn iter(self) -> impl Iterator<Item = Range<usize>> {
        (0..self.rows).step_by(self.step).map(move |first| first..self.rows.min(first + self.step))
    }

    /// Bytes of all buffers.
    pub(crate) fn total(self) -> Bytes {
        self.iter().map(|rows| Bytes::new(self.buffer_bytes(&rows))).sum()
    }

    /// Bytes of rows, and those that make them whole words.
    fn buffer_bytes(self, rows: &Range<usize>) -> u64 {
        (rows.len() as u64 * self.row_bytes).next_multiple_of(WORD)
    }

    fn bytes(self, rows: &Range<usize>) -> Range<usize> {
        let at = |row: usize| row * self.row_bytes as usize;
        at(rows.start)..at(rows.end)
    }
}

/// Rows of a weight in one buffer.
#[derive(Clone, Debug)]
pub(crate) struct Chunk {
    pub(crate) rows: Range<usize>,
    pub(crate) buffer: wgpu::Buffer,
}

/// A weight on the device.
#[derive(Clone, Debug)]
pub(crate) struct Weight {
    pub(crate) chunks: Vec<Chunk>,
    /// Bytes of a row of the declared shape.
    pub(crate) row_bytes: u64,
    total: Bytes,
}

/// The weights of a session.
#[derive(Debug, Default)]
pub(crate) struct Weights(BTreeMap<WeightId, Weight>);

impl Weights {
    /// Copies a weight to the device; replaces one of the same id.
    ///
    /// # Errors
    /// If the bytes are not as many as declared, or the device has no memory for them.
    pub(crate) fn insert(
        &mut self,
        (gpu, spec): (&Gpu, &WgpuSpec),
        staging: &mut Staging,
        id: WeightId,
        decl: &WeightDecl,
        data: &WeightBytes,
    ) -> Result<(), BackendError> {
        let bytes = data.as_slice();
        let expected = decl.shape.nbytes(decl.dtype).unwrap_or(Bytes::MAX);
        let name = decl.name.escape_debug();
        if Bytes::from(bytes.len()) != expected {
            let (backend, name, found) = (NAME.to_owned(), name.to_string(), Bytes::from(bytes.len()));
            return Err(BackendError::Weight { backend, name, expected, found });
        }
        let chunks = spec.chunks(decl).ok_or_else(|| {
            device(gpu.adapter(), &format!("{name}: a row is longer than {}", spec.max_buffer_bytes()))
        })?;
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST;
        let mut uploaded = Vec::new();
        for rows in chunks.iter() {
            let buffer = gpu.create_buffer(&decl.name, chunks.buffer_bytes(&rows), usage)?;
            staging.write(gpu, &buffer, 0, &bytes[chunks.bytes(&rows)])?;
            uploaded.push(Chunk { rows, buffer });
        }
        let weight = Weight { chunks: uploaded, row_bytes: chunks.row_bytes, total: chunks.total() };
        self.0.insert(id, weight);
        Ok(())
    }

    /// A registered weight.
    pub(crate) fn get(&self, id: WeightId) -> Option<&Weight> {
        self.0.get(&id)
    }

    /// Bytes of all of them.
    pub(crate) fn bytes(&self) -> Bytes {
        self.0.values().map(|weight| weight.total).sum()
    }
}

#[cfg(test)]
mod tests {
    use minfer_graph::Shape;
    use minfer_tensor::DType;

    use super::*;

    fn decl(rows: usize, cols: usize) -> WeightDecl {
        WeightDecl { name: "w".into(), dtype: DType::Q8_0, shape: Shape::new(rows, cols), multiplied: true }
    }

    #[test]
    fn a_weight_is_cut_between_rows_and_padded_to_words() {
        let chunks = Chunks::new(&decl(7, 32), 34 * 3 + 33).unwrap();
        assert!(chunks.iter().eq([0..3, 3..6, 6..7]));
        assert_eq!(chunks.bytes(&(3..6)), 102..204);
        assert_eq!(chunks.total(), Bytes::new(104 + 104 + 36));
        let whole = Chunks::new(&decl(7, 32), u64::MAX).unwrap();
        assert!(whole.iter().eq(std::iter::once(0..7)));
        assert_eq!(whole.total(), Bytes::new(240));
    }

    #[test]
    fn a_row_is_not_cut() {
        assert_eq!(Chunks::new(&decl(7, 32), 33), None);
        assert_eq!(Chunks::new(&decl(7, 33), 1 << 20), None);
    }
}
