//! Compiled kernels: made once, kept for all segments, and on disk where the driver can give them out.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use minfer_graph::BackendError;
use minfer_tensor::Bytes;

use crate::adapter::Adapter;
use crate::device::Gpu;
use crate::hal;
use crate::kernels::{Access, Kernel, MAX_PARAMS_BYTES};

/// A compiled kernel and the layout of its bindings.
#[derive(Debug)]
pub(crate) struct Pipeline {
    pub(crate) pipeline: wgpu::ComputePipeline,
    pub(crate) layout: wgpu::BindGroupLayout,
}

/// Every kernel that was needed so far.
#[derive(Debug, Default)]
pub(crate) struct Pipelines {
    made: HashMap<Kernel, Arc<Pipeline>>,
    /// Kernels whose bindings are alike share a layout, and so can share a bind group.
    layouts: HashMap<&'static [Access], wgpu::BindGroupLayout>,
    disk: Option<DiskCache>,
}

impl Pipelines {
    /// Nothing compiled yet; what an earlier process left in `folder` will be used.
    pub(crate) fn new(gpu: &Gpu, adapter: &Adapter, folder: Option<&Path>) -> Self {
        let can_cache = gpu.device.features().contains(wgpu::Features::PIPELINE_CACHE);
        let key = wgpu::util::pipeline_cache_key(adapter.info()).filter(|_| can_cache);
        let disk = folder.zip(key).map(|(folder, key)| DiskCache::open(gpu, folder.join(key)));
        Self { disk, ..Self::default() }
    }

    /// The pipeline of a kernel, compiled now unless it is known.
    pub(crate) fn get(&mut self, gpu: &Gpu, kernel: Kernel) -> Result<Arc<Pipeline>, BackendError> {
        if let Some(pipeline) = self.made.get(&kernel) {
            return Ok(pipeline.clone());
        }
        let layout = self.layout(gpu, kernel.bindings())?;
        let cache = self.disk.as_ref().map(|disk| &disk.cache);
        let pipeline = gpu.scoped(Bytes::ZERO, || Pipeline::compile(&gpu.device, kernel, layout, cache))?;
        let pipeline = Arc::new(pipeline);
        self.made.insert(kernel, pipeline.clone());
        if let Some(disk) = &mut self.disk {
            disk.is_new = true;
        }
        Ok(pipeline)
    }

    fn layout(
        &mut self,
        gpu: &Gpu,
        bindings: &'static [Access],
    ) -> Result<wgpu::BindGroupLayout, BackendError> {
        if let Some(layout) = self.layouts.get(bindings) {
            return Ok(layout.clone());
        }
        let entries: Vec<_> = (0..).zip(bindings).map(|(i, &access)| entry(i, access)).collect();
        let descriptor = wgpu::BindGroupLayoutDescriptor { label: None, entries: &entries };
        let layout = gpu.scoped(Bytes::ZERO, || gpu.device.create_bind_group_layout(&descriptor))?;
        self.layouts.insert(bindings, layout.clone());
        Ok(layout)
    }
}

impl Pipeline {
    fn compile(
        device: &wgpu::Device,
        kernel: Kernel,
        layout: wgpu::BindGroupLayout,
        cache: Option<&wgpu::PipelineCache>,
    ) -> Self {
        let label = format!("{kernel:?}");
        let label = Some(label.as_str());
        let pipeline_layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label,
            bind_group_layouts: &[Some(&layout)],
            immediate_size: MAX_PARAMS_BYTES,
        });
        let source = wgpu::ShaderSource::Wgsl(kernel.source().into());
        let module = device.create_shader_module(wgpu::ShaderModuleDescriptor { label, source });
        let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label,
            layout: Some(&pipeline_layout),
            module: &module,
            entry_point: Some("main"),
            compilation_options: wgpu::PipelineCompilationOptions {
                zero_initialize_workgroup_memory: false,
                ..Default::default()
            },
            cache,
        });
        Self { pipeline, layout }
    }
}

fn entry(binding: u32, access: Access) -> wgpu::BindGroupLayoutEntry {
    let read_only = access == Access::Read;
    wgpu::BindGroupLayoutEntry {
        binding,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer {
            ty: wgpu::BufferBindingType::Storage { read_only },
            has_dynamic_offset: false,
            min_binding_size: None,
        },
        count: None,
    }
}

/// The driver's own form of compiled pipelines, in a file that is written when the backend ends.
#[derive(Debug)]
struct DiskCache {
    file: PathBuf,
    cache: wgpu::PipelineCache,
    /// Whether something was compiled since.
    is_new: bool,
}

impl DiskCache {
    /// Starts empty if the file can't be read; wgpu ignores one of another driver.
    fn open(gpu: &Gpu, file: PathBuf) -> Self {
        let data = fs::read(&file).ok();
        let cache = hal::pipeline_cache(&gpu.device, data.as_deref());
        Self { file, cache, is_new: false }
    }

    /// Replaces the file. A cache is a convenience: failing to keep it is no error.
    fn save(&self) -> std::io::Result<()> {
        let Some(data) = self.cache.get_data() else { return Ok(()) };
        if let Some(folder) = self.file.parent() {
            fs::create_dir_all(folder)?;
        }
        let unfinished = self.file.with_extension(format!("{}.part", std::process::id()));
        fs::write(&unfinished, data)?;
        fs::rename(&unfinished, &self.file)
    }
}

impl Drop for DiskCache {
    fn drop(&mut self) {
        if self.is_new {
            let _ = self.save();
        }
    }
}
