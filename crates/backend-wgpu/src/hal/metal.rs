//! Memory by Metal: what it recommends that a process uses at most.

use minfer_graph::DeviceMemory;
use minfer_tensor::Bytes;
use objc2_metal::MTLDevice;
use wgpu::hal::api::Metal;

use super::Answer;

/// `None` if the adapter isn't Metal's.
pub(super) fn memory(adapter: &wgpu::Adapter) -> Option<Answer> {
    // SAFETY: nothing is destroyed through the handle, which lives as long as this function.
    let adapter = unsafe { adapter.as_hal::<Metal>() }?;
    let device = adapter.raw_device();
    let total = Bytes::new(device.recommendedMaxWorkingSetSize());
    let free = total.saturating_sub(Bytes::from(device.currentAllocatedSize()));
    Some(Answer { memory: DeviceMemory::Reported { free, total }, is_heap_size: false })
}
