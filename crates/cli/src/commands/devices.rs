//! `minfer devices`: backends, devices, and what they say of their memory.

use minfer_backend_cpu::CpuSpec;
use minfer_engine::{MemoryAnswer, host_memory};
use minfer_graph::DeviceSpec;
use serde::Serialize;

use crate::args::{DevicesArgs, default_threads};
use crate::error::CliError;
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
    let devices = Devices { devices: vec![host()] };
    if args.output.json {
        return output::print_json(&Versioned::new(devices));
    }
    let lines: String = devices.devices.iter().map(line).collect();
    output::print(&lines)
}

fn host() -> Device {
    let cpu = CpuSpec::detect(default_threads());
    Device {
        backend: cpu.name().to_owned(),
        name: cpu.device_name(),
        software: false,
        unified: true,
        memory: MemoryAnswer::from(&host_memory()),
    }
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
