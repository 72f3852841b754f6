//! The one resolver of device memory (rule A2).

use minfer_graph::{Backend, DeviceMemory};

/// What is known of the memory of `device`: its own answer, or that there is none. Whoever decides on a budget, the fit
/// or the gate, asks here, once, before anything is allocated.
pub fn device_memory(device: Option<&dyn Backend>) -> DeviceMemory {
    device.map_or(DeviceMemory::NoDevice, Backend::device_memory)
}
