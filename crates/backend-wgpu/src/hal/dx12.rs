//! Memory by DirectX 12: the budget that the system gives this process.

use minfer_graph::DeviceMemory;
use minfer_tensor::Bytes;
use wgpu::hal::api::Dx12;
use windows::Win32::Graphics::Dxgi::DXGI_MEMORY_SEGMENT_GROUP_LOCAL;

use super::Answer;

/// `None` if the adapter isn't DirectX's.
pub(super) fn memory(adapter: &wgpu::Adapter) -> Option<Answer> {
    // SAFETY: nothing is destroyed through the handle, which lives as long as this function.
    let adapter = unsafe { adapter.as_hal::<Dx12>() }?;
    let memory = match adapter.raw_adapter().query_video_memory_info(DXGI_MEMORY_SEGMENT_GROUP_LOCAL) {
        Ok(info) => DeviceMemory::Reported {
            free: Bytes::new(info.Budget.saturating_sub(info.CurrentUsage)),
            total: Bytes::new(info.Budget),
        },
        Err(error) => DeviceMemory::QueryFailed { name: error.to_string() },
    };
    Some(Answer { memory, is_heap_size: false })
}
