//! What can be said of a device without opening it.

use minfer_graph::{CNode, ComputeGraph, DeviceSpec, NodeId, WeightCharge, WeightDecl};
use minfer_tensor::{Bytes, DType};

use crate::adapter::Adapter;
use crate::device::OpenOptions;
use crate::error::NAME;
use crate::exec;
use crate::weights::Chunks;

/// Bytes that wgpu takes from the driver at once, to place small buffers in.
pub(crate) const SUBALLOCATION_BLOCK: u64 = 4 << 20;
/// Bytes on their way to the device, in two halves.
pub(crate) const UPLOAD_BYTES: u64 = 4 << 20;
/// Bytes on their way back.
pub(crate) const READBACK_BYTES: u64 = 4 << 20;

/// All lengths and offsets of copies and bindings are multiples of this.
pub(crate) const WORD: u64 = 4;

/// An adapter's description and the limits of a device opened on it.
#[derive(Clone, Debug)]
pub(crate) struct WgpuSpec {
    device_name: String,
    max_binding: u64,
    weight_chunk: u64,
    is_unified: bool,
}

impl WgpuSpec {
    pub(crate) fn new(adapter: &Adapter, options: &OpenOptions) -> Self {
        let limits = adapter.raw().limits();
        let most = limits.max_storage_buffer_binding_size.min(limits.max_buffer_size);
        let kind = if adapter.is_software() { "software" } else { "device" };
        let device_name = format!("{NAME}, {} ({:?}, {kind})", adapter.name(), adapter.api());
        let max_binding = most / WORD * WORD;
        let weight_chunk = options.weight_chunk.map_or(max_binding, |bytes| bytes.get().min(max_binding));
        Self { device_name, max_binding, weight_chunk, is_unified: adapter.is_unified() }
    }

    /// How a weight is cut for this device; `None` if a row is too long.
    pub(crate) fn chunks(&self, decl: &WeightDecl) -> Option<Chunks> {
        Chunks::new(decl, self.weight_chunk)
    }
}

impl DeviceSpec for WgpuSpec {
    fn name(&self) -> &str {
        NAME
    }

    /// `wgpu, AMD Radeon RX 6600 (Vulkan, device)`.
    fn device_name(&self) -> String {
        self.device_name.clone()
    }

    fn supports_op(&self, node: &CNode, operands: &[DType]) -> bool {
        exec::supports(node, operands)
    }

    fn scratch_bytes(&self, _: &ComputeGraph, _: &[NodeId]) -> Bytes {
        Bytes::ZERO
    }

    /// A copy of the file's bytes, in as many buffers as it takes.
    fn weight_bytes(&self, decl: &WeightDecl, _: bool) -> WeightCharge {
        let anonymous = self.chunks(decl).map_or(Bytes::MAX, Chunks::total);
        WeightCharge { mapped: Bytes::ZERO, anonymous }
    }

    /// The staging buffers and wgpu's block.
    fn fixed_bytes(&self) -> Bytes {
        Bytes::new(UPLOAD_BYTES + READBACK_BYTES + SUBALLOCATION_BLOCK)
    }

    /// What a kernel can see of a buffer.
    fn max_buffer_bytes(&self) -> Bytes {
        Bytes::new(self.max_binding)
    }

    fn buffer_align(&self) -> Bytes {
        Bytes::new(WORD)
    }

    fn is_unified(&self) -> bool {
        self.is_unified
    }
}
