//! What wgpu doesn't offer, asked of the API underneath: free memory, and the driver's cache of compiled pipelines.
#![allow(unsafe_code, reason = "reaches below wgpu's checks")]

#[cfg(windows)]
mod dx12;
#[cfg(target_vendor = "apple")]
mod metal;
#[cfg(not(target_vendor = "apple"))]
mod vulkan;

use minfer_graph::DeviceMemory;

/// A device's memory and what the numbers are.
pub(crate) struct Answer {
    pub(crate) memory: DeviceMemory,
    /// Whether the driver knows only how much there is, and not how much is free.
    pub(crate) is_heap_size: bool,
}

/// Asks the driver of an adapter.
pub(crate) fn memory(adapter: &wgpu::Adapter) -> Answer {
    #[cfg(not(target_vendor = "apple"))]
    if let Some(answer) = vulkan::memory(adapter) {
        return answer;
    }
    #[cfg(windows)]
    if let Some(answer) = dx12::memory(adapter) {
        return answer;
    }
    #[cfg(target_vendor = "apple")]
    if let Some(answer) = metal::memory(adapter) {
        return answer;
    }
    let name = format!("no memory query for {}", adapter.get_info().backend);
    Answer { memory: DeviceMemory::QueryFailed { name }, is_heap_size: false }
}

/// A cache of compiled pipelines that starts from `data`, which an earlier [`wgpu::PipelineCache::get_data`] gave.
pub(crate) fn pipeline_cache(device: &wgpu::Device, data: Option<&[u8]>) -> wgpu::PipelineCache {
    let descriptor = wgpu::PipelineCacheDescriptor { label: Some("pipelines"), data, fallback: true };
    // SAFETY: the bytes are from a file that this program wrote under the driver's own key in the user's cache folder;
    // wgpu compares its header and hash before the driver sees them, and starts empty if they differ.
    unsafe { device.create_pipeline_cache(&descriptor) }
}
