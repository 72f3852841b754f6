//! What can be said of the CPU without running anything on it.

use minfer_graph::{CNode, ComputeGraph, DeviceSpec, NodeId, Op, Shape, WeightCharge, WeightDecl};
use minfer_tensor::{Bytes, DType};

use crate::exec::scratch;
use crate::kernels::{self, KEY_BLOCK, Kernels};

/// The name in messages and reports.
pub(crate) const NAME: &str = "cpu";

/// A number of threads, a kernel table and whether weights are repacked: all that a plan for the CPU depends on.
#[derive(Clone, Copy)]
pub struct CpuSpec {
    threads: usize,
    kernels: &'static Kernels,
    repack: bool,
}

impl CpuSpec {
    /// `threads` (at least 1) that run `kernels`.
    pub fn new(threads: usize, kernels: &'static Kernels) -> Self {
        Self { threads: threads.max(1), kernels, repack: true }
    }

    /// The same, with quantized matrices repacked at the load (the default) or used where they lie: more speed, or
    /// pages of the file that the system can take back and that processes share. Results have the same bits.
    pub fn with_repack(self, repack: bool) -> Self {
        Self { repack, ..self }
    }

    /// Whether this weight is.
    pub(crate) fn packs(&self, decl: &WeightDecl) -> bool {
        self.repack && decl.multiplied && decl.dtype.is_quantized()
    }

    /// Whether this weight is copied as it is: vectors are few bytes, and beside packed weights each would keep a page of
    /// the file resident, or the huge page around it.
    pub(crate) fn copies(&self, decl: &WeightDecl) -> bool {
        self.repack && decl.shape.rows == 1 && !self.packs(decl)
    }

    /// `threads` that run the best kernels of this processor.
    pub fn detect(threads: usize) -> Self {
        Self::new(threads, Kernels::detect())
    }

    /// Threads that run a graph.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// The kernel table.
    pub fn kernels(&self) -> &'static Kernels {
        self.kernels
    }
}

impl DeviceSpec for CpuSpec {
    fn name(&self) -> &str {
        NAME
    }

    /// `cpu, 2 threads, avx512-vnni`.
    fn device_name(&self) -> String {
        let plural = if self.threads == 1 { "" } else { "s" };
        format!("cpu, {} thread{plural}, {}", self.threads, self.kernels.name())
    }

    fn supports_op(&self, node: &CNode, operands: &[DType]) -> bool {
        let weights = |index: usize| operands.get(index).is_some_and(|&dtype| dtype != DType::I32);
        match &node.op {
            Op::GetRows | Op::MatMul => weights(0),
            Op::WriteRows => operands.first().is_some_and(|&dtype| head_unit(dtype).is_some()),
            Op::Attention(a) => match operands {
                [_, k, v, ..] => k == v && has_attention(*k, a.head_dim),
                _ => false,
            },
            _ => true,
        }
    }

    fn scratch_bytes(&self, graph: &ComputeGraph, nodes: &[NodeId]) -> Bytes {
        scratch::segment_bytes(graph, nodes, self.threads)
    }

    /// The bytes of the copy, packed or plain, from which on the source isn't used; else the file's, which kernels read
    /// where they lie.
    fn weight_bytes(&self, decl: &WeightDecl, mapped: bool) -> WeightCharge {
        let bytes = decl.shape.nbytes(decl.dtype).unwrap_or(Bytes::MAX);
        if self.packs(decl) {
            WeightCharge { mapped: Bytes::ZERO, anonymous: packed_bytes(decl) }
        } else if mapped && !self.copies(decl) {
            WeightCharge { mapped: bytes, anonymous: Bytes::ZERO }
        } else {
            WeightCharge { mapped: Bytes::ZERO, anonymous: bytes }
        }
    }

    fn key_block(&self, dtype: DType) -> usize {
        key_block(dtype)
    }

    fn is_unified(&self) -> bool {
        true
    }
}

/// Bytes of the packed copy of a weight; saturates.
pub(crate) fn packed_bytes(decl: &WeightDecl) -> Bytes {
    let row = Shape::new(1, decl.shape.cols).nbytes(decl.dtype).and_then(Bytes::to_usize);
    row.map_or(Bytes::MAX, |row| Bytes::from(kernels::packed_bytes(decl.shape.rows, row)))
}

/// Keys that lie transposed together in a cache of keys; blocks of Q8_0 are along a row.
pub(crate) fn key_block(dtype: DType) -> usize {
    match dtype {
        DType::F32 | DType::F16 => KEY_BLOCK,
        _ => 1,
    }
}

/// What a head's size must be a multiple of if keys and values are stored as `dtype`; `None` if they can't be.
pub(crate) fn head_unit(dtype: DType) -> Option<usize> {
    match dtype {
        DType::F32 | DType::F16 => Some(16),
        DType::Q8_0 => Some(dtype.block_len()),
        _ => None,
    }
}

/// Whether there is an attention kernel for heads of this size.
pub(crate) fn has_attention(dtype: DType, head_dim: usize) -> bool {
    head_unit(dtype).is_some_and(|unit| head_dim.is_multiple_of(unit))
}
