//! Registered weights: packed or plain copies, or used where they lie.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use minfer_graph::{BackendError, WeightBytes, WeightDecl, WeightId};
use minfer_tensor::{Bytes, DType};

use crate::buffer::{AlignedBuf, AllocError, ByteCounter, populate};
use crate::kernels::{self, ROW_UNIT};
use crate::pool::ThreadPool;
use crate::spec::{CpuSpec, NAME, packed_bytes};

/// Bytes that a thread packs between two releases of the source, so that no second copy becomes resident: enough to be
/// made resident at once.
const CHUNK: usize = 2 << 20;

/// A weight and the owner of its bytes.
#[derive(Clone, Debug)]
pub(crate) enum Weight {
    /// As in the file.
    InPlace(WeightBytes),
    /// A copy of that.
    Copied(Arc<AlignedBuf>),
    /// In panels of sixteen rows.
    Packed {
        /// The panels.
        panels: Arc<AlignedBuf>,
        /// Bytes of a row.
        row_bytes: usize,
    },
}

impl Weight {
    /// Its bytes.
    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Self::InPlace(data) => data.as_slice(),
            Self::Copied(copy) => copy.as_slice(),
            Self::Packed { panels, .. } => panels.as_slice(),
        }
    }
}

/// The weights of a session.
#[derive(Debug, Default)]
pub(crate) struct Weights {
    weights: BTreeMap<WeightId, Weight>,
    copies: ByteCounter,
}

impl Weights {
    /// Takes a weight in, packed or copied if `cpu` says so; replaces one of the same id.
    ///
    /// # Errors
    /// If the bytes are not as many as declared, or not aligned for f32 or f16 arithmetic, or if there is no memory for
    /// the copy.
    pub(crate) fn insert(
        &mut self,
        id: WeightId,
        decl: &WeightDecl,
        data: WeightBytes,
        cpu: &CpuSpec,
        pool: &mut ThreadPool,
    ) -> Result<(), BackendError> {
        let found = Bytes::from(data.as_slice().len());
        let expected = decl.shape.nbytes(decl.dtype).unwrap_or(Bytes::MAX);
        if found != expected {
            let (backend, name) = (NAME.to_owned(), decl.name.escape_debug().to_string());
            return Err(BackendError::Weight { backend, name, expected, found });
        }
        let weight = if cpu.packs(decl) {
            self.pack(decl, &data, pool)?
        } else if cpu.copies(decl) && data.is_mapped() {
            self.copy(&data)?
        } else {
            Weight::InPlace(aligned(decl, data)?)
        };
        self.weights.insert(id, weight);
        Ok(())
    }

    fn pack(
        &self,
        decl: &WeightDecl,
        data: &WeightBytes,
        pool: &mut ThreadPool,
    ) -> Result<Weight, BackendError> {
        let row_bytes = data.as_slice().len() / decl.shape.rows.max(1);
        let requested = packed_bytes(decl);
        let mut panels = self.allocate(requested, AlignedBuf::reserved)?;
        if !panels.is_empty() && !fill(decl.dtype, data, row_bytes, panels.as_mut_slice(), pool) {
            return Err(refused(requested, "no pages are left".to_owned()));
        }
        Ok(Weight::Packed { panels: Arc::new(panels), row_bytes })
    }

    fn copy(&self, data: &WeightBytes) -> Result<Weight, BackendError> {
        let bytes = data.as_slice();
        let mut copy = self.allocate(Bytes::from(bytes.len()), AlignedBuf::zeroed)?;
        copy.as_mut_slice().copy_from_slice(bytes);
        data.release(0..bytes.len());
        Ok(Weight::Copied(Arc::new(copy)))
    }

    fn allocate(
        &self,
        requested: Bytes,
        how: fn(usize, &ByteCounter) -> Result<AlignedBuf, AllocError>,
    ) -> Result<AlignedBuf, BackendError> {
        let len = requested
            .to_usize()
            .ok_or_else(|| refused(requested, "more than this processor can address".to_owned()))?;
        how(len, &self.copies).map_err(|error| refused(requested, error.to_string()))
    }

    /// A registered weight.
    pub(crate) fn get(&self, id: WeightId) -> Option<&Weight> {
        self.weights.get(&id)
    }

    /// Bytes of all of them.
    pub(crate) fn bytes(&self) -> Bytes {
        let in_place = self.weights.values().map(|weight| match weight {
            Weight::InPlace(data) => Bytes::from(data.as_slice().len()),
            Weight::Copied(_) | Weight::Packed { .. } => Bytes::ZERO,
        });
        in_place.sum::<Bytes>().saturating_add(Bytes::from(self.copies.bytes()))
    }
}

/// Packs all rows, shared out over the threads, into memory that each makes resident. `false` if there is none left.
fn fill(
    dtype: DType,
    data: &WeightBytes,
    row_bytes: usize,
    panels: &mut [u8],
    pool: &mut ThreadPool,
) -> bool {
    let unit = ROW_UNIT * row_bytes;
    let chunk = CHUNK.div_ceil(unit) * unit;
    let parts: Vec<_> = panels.chunks_mut(chunk).map(Mutex::new).collect();
    let (next, refused) = (AtomicUsize::new(0), AtomicBool::new(false));
    pool.run(|_| {
        loop {
            let nth = next.fetch_add(1, Ordering::Relaxed);
            let Some(part) = parts.get(nth) else { return };
            let mut part = part.lock().unwrap_or_else(PoisonError::into_inner);
            if refused.load(Ordering::Relaxed) || !populate(&mut part) {
                refused.store(true, Ordering::Relaxed);
                return;
            }
            let rows = nth * chunk..(nth * chunk + part.len()).min(data.as_slice().len());
            kernels::pack(dtype, &data.as_slice()[rows.clone()], row_bytes, &mut part);
            data.release(rows);
        }
    });
    !refused.into_inner()
}

fn refused(requested: Bytes, reason: String) -> BackendError {
    BackendError::OutOfMemory { backend: NAME.to_owned(), requested, reason }
}

/// Bytes that kernels can use where they lie.
fn aligned(decl: &WeightDecl, data: WeightBytes) -> Result<WeightBytes, BackendError> {
    let align = element_align(decl.dtype);
    if data.as_slice().as_ptr().addr().is_multiple_of(align) {
        return Ok(data);
    }
    let name = decl.name.escape_debug();
    let what = format!("{name}: {} weights at an address that is no multiple of {align}", decl.dtype);
    Err(BackendError::Device { backend: NAME.to_owned(), what })
}

/// What the address of an element must be a multiple of; blocks may lie anywhere.
pub(crate) fn element_align(dtype: DType) -> usize {
    match dtype {
        DType::F32 | DType::I32 => 4,
        DType::F16 | DType::BF16 => 2,
        _ => 1,
    }
}
