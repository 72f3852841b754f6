//! Memory by Vulkan: the budget of `VK_EXT_memory_budget`, or else the size of the heap.

use ash::vk;
use minfer_graph::DeviceMemory;
use minfer_tensor::Bytes;
use wgpu::hal::api::Vulkan;

use super::Answer;

/// `None` if the adapter isn't Vulkan's.
pub(super) fn memory(adapter: &wgpu::Adapter) -> Option<Answer> {
    // SAFETY: nothing is destroyed through the handle, which lives as long as this function.
    let adapter = unsafe { adapter.as_hal::<Vulkan>() }?;
    let has_budget = adapter.physical_device_capabilities().supports_extension(ash::ext::memory_budget::NAME);
    let mut budget = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
    let mut properties = vk::PhysicalDeviceMemoryProperties2::default();
    if has_budget {
        properties = properties.push_next(&mut budget);
    }
    let instance = adapter.shared_instance().raw_instance();
    // SAFETY: the physical device is the instance's, and both live as long as `adapter`; wgpu requires Vulkan 1.1 or the
    // extension that has this call; the budget is chained in only where the device has its extension.
    unsafe {
        instance.get_physical_device_memory_properties2(adapter.raw_physical_device(), &mut properties);
    }
    let heaps = properties.memory_properties;
    let is_local = |heap: &vk::MemoryHeap| heap.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL);
    let heaps = heaps.memory_heaps.iter().take(heaps.memory_heap_count as usize).enumerate();
    let Some((index, heap)) = heaps.filter(|(_, heap)| is_local(heap)).max_by_key(|(_, heap)| heap.size)
    else {
        let name = "no device-local heap".to_owned();
        return Some(Answer { memory: DeviceMemory::QueryFailed { name }, is_heap_size: false });
    };
    let (total, mut free) = (Bytes::new(heap.size), Bytes::new(heap.size));
    if has_budget {
        let left = budget.heap_budget[index].saturating_sub(budget.heap_usage[index]);
        free = Bytes::new(left);
    }
    Some(Answer { memory: DeviceMemory::Reported { free, total }, is_heap_size: !has_budget })
}
