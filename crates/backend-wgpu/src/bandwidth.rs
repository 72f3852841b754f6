//! How fast the device reads its memory: the bound on a token's time, measured on the machine at hand.

use std::time::Instant;

use minfer_graph::BackendError;
use minfer_tensor::Bytes;
use wgpu::BufferUsages;

use crate::device::Gpu;

/// The kernel; `tests` translate it with the others.
pub(crate) const SOURCE: &str = include_str!("bandwidth.wgsl");

/// Larger than the caches of large devices.
const MOST_BYTES: u64 = 512 << 20;
/// Invocations of a workgroup, as the kernel says.
const WORKGROUP: u64 = 256;
/// Enough to fill a large device; each invocation reads many times.
const WORKGROUPS: u32 = 4096;
/// Measurements, of which the best counts.
const TIMES: usize = 5;
/// A measurement takes about so long, so that handing the work over doesn't matter.
const SECONDS: f64 = 0.02;
/// Most readings of a measurement.
const MOST_READINGS: f64 = 256.0;

/// Bytes a second, with a buffer of at most `most` bytes.
pub(crate) fn measure(gpu: &Gpu, most: u64) -> Result<f64, BackendError> {
    let bytes = most.min(MOST_BYTES) / 16 * 16;
    let source = gpu.create_buffer("bandwidth", bytes, BufferUsages::STORAGE | BufferUsages::COPY_DST)?;
    let sums = gpu.create_buffer("sums", u64::from(WORKGROUPS) * WORKGROUP * 4, BufferUsages::STORAGE)?;
    let (pipeline, group) = gpu.scoped(Bytes::ZERO, || compile(&gpu.device, [&source, &sums]))?;
    let seconds = |readings: u32| -> Result<f64, BackendError> {
        let mut encoder = gpu.encoder();
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        pass.set_pipeline(&pipeline);
        pass.set_bind_group(0, &group, &[]);
        (0..readings).for_each(|_| pass.dispatch_workgroups(WORKGROUPS, 1, 1));
        drop(pass);
        let start = Instant::now();
        let submission = gpu.submit(encoder)?;
        gpu.wait(Some(submission))?;
        Ok(start.elapsed().as_secs_f64())
    };
    // The first time the buffer is filled with zeros and the kernel is compiled.
    seconds(1)?;
    let readings = (SECONDS / seconds(1)?).clamp(1.0, MOST_READINGS) as u32;
    let mut best = f64::INFINITY;
    for _ in 0..TIMES {
        best = best.min(seconds(readings)?);
    }
    Ok(bytes as f64 * f64::from(readings) / best)
}

fn compile(device: &wgpu::Device, buffers: [&wgpu::Buffer; 2]) -> (wgpu::ComputePipeline, wgpu::BindGroup) {
    let label = Some("bandwidth");
    let source = wgpu::ShaderSource::Wgsl(SOURCE.into());
    let module = device.create_shader_module(wgpu::ShaderModuleDescriptor { label, source });
    let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label,
        layout: None,
        module: &module,
        entry_point: Some("main"),
        compilation_options: wgpu::PipelineCompilationOptions::default(),
        cache: None,
    });
    let layout = pipeline.get_bind_group_layout(0);
    let entries =
        [0, 1].map(|i| wgpu::BindGroupEntry { binding: i as u32, resource: buffers[i].as_entire_binding() });
    let descriptor = wgpu::BindGroupDescriptor { label, layout: &layout, entries: &entries };
    (pipeline, device.create_bind_group(&descriptor))
}
