//! `minfer devices`: backends, devices, and what they say of their memory.

use minfer_backend_wgpu::{Adapter, adapters};
use minfer_engine::{MemoryAnswer, host_memory};
use minfer_graph::DeviceSpec;
use serde::Serialize;

use crate::args::{DevicesArgs, default_threads};
use crate::error::CliError;
use crate::machine;
use crate::output::{self, Versioned};
use crate::{escape, render};

#[derive(Serialize)]
struct Devices {
    devices: Vec<Device>,
}

#[derive(Serialize)]
struct Device {
    backend: String,
    name: String,
    /// Whether it is a GPU that the processor only pretends to be.
    software: bool,
    /// Whether it shares the host's memory.
    unified: bool,
    memory: MemoryAnswer,
}

/// Lists the devices, the host last.
pub(super) fn devices(args: &DevicesArgs) -> Result<(), CliError> {
    let host = host()?;
    let devices = Devices { devices: adapters().iter().map(device).chain([host]).collect() };
    if args.output.json {
        return output::print_json(&Versioned::new(devices));
    }
    let lines: String = devices.devices.iter().map(line).collect();
    output::print(&lines)
}

fn device(adapter: &Adapter) -> Device {
    let spec = adapter.spec();
    Device {
        backend: spec.name().to_owned(),
        name: adapter.name().to_owned(),
        software: adapter.is_software(),
        unified: adapter.is_unified(),
        memory: MemoryAnswer::from(&adapter.memory()),
    }
}

fn host() -> Result<Device, CliError> {
    let cpu = machine::cpu(default_threads())?;
    Ok(Device {
        backend: cpu.name().to_owned(),
        name: cpu.device_name(),
        software: false,
        unified: true,
        memory: MemoryAnswer::from(&host_memory()),
    })
}

fn line(device: &Device) -> String {
    let memory = &device.memory;
    let answer = match (memory.free, memory.total, &memory.error) {
        (Some(free), Some(total), _) => format!("{} MiB free of {}", render::mib(free), render::mib(total)),
        (_, _, Some(error)) => format!("memory unknown: {}", escape::line(error)),
        _ => "no memory of its own".into(),
    };
    format!("{}  {}  {answer}\n", device.backend, escape::line(&device.name))
}
