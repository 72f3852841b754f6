//! Runs single kernels on the software driver.

use std::sync::OnceLock;

use crate::kernels::{Access, Kernel, Params};

/// A device with every feature that a kernel variant may need.
pub(super) struct Machine {
    device: wgpu::Device,
    queue: wgpu::Queue,
}

/// Buffers of a dispatch as bytes, each with the bindings that show it.
pub(super) struct Memory {
    pub(super) bytes: Vec<u8>,
    pub(super) bindings: &'static [usize],
}

impl Memory {
    pub(super) fn new<T: bytemuck::Pod>(values: &[T], bindings: &'static [usize]) -> Self {
        Self { bytes: bytemuck::cast_slice(values).to_vec(), bindings }
    }

    pub(super) fn floats(&self) -> Vec<f32> {
        bytemuck::pod_collect_to_vec(&self.bytes)
    }
}

impl Machine {
    /// The device, opened once for all tests. Without an adapter, `None`, or a failure where one is required.
    pub(super) fn get() -> Option<&'static Self> {
        static MACHINE: OnceLock<Option<Machine>> = OnceLock::new();
        let machine = MACHINE.get_or_init(Self::open).as_ref();
        let required = std::env::var("MINFER_TEST_WGPU").is_ok_and(|value| value == "required");
        assert!(machine.is_some() || !required, "MINFER_TEST_WGPU=required and no graphics adapter");
        machine
    }

    fn open() -> Option<Self> {
        let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
        let adapters = pollster::block_on(instance.enumerate_adapters(wgpu::Backends::PRIMARY));
        let is_software = |adapter: &wgpu::Adapter| adapter.get_info().device_type == wgpu::DeviceType::Cpu;
        let adapter = adapters.into_iter().min_by_key(|adapter| !is_software(adapter))?;
        let request = wgpu::DeviceDescriptor {
            required_features: wgpu::Features::IMMEDIATES | wgpu::Features::SUBGROUP,
            required_limits: adapter.limits(),
            ..Default::default()
        };
        let (device, queue) = pollster::block_on(adapter.request_device(&request)).expect("a usable device");
        Some(Self { device, queue })
    }

    /// One dispatch; `memory` is what it leaves.
    pub(super) fn run(&self, kernel: Kernel, params: &Params, memory: &mut [Memory]) {
        let buffers: Vec<wgpu::Buffer> = memory.iter().map(|m| self.upload(&m.bytes)).collect();
        let layout = self.layout(kernel);
        let pipeline = self.pipeline(kernel, params, &layout);
        let mut entries = Vec::new();
        for (buffer, memory) in buffers.iter().zip(memory.iter()) {
            entries.extend(memory.bindings.iter().map(|&binding| wgpu::BindGroupEntry {
                binding: u32::try_from(binding).expect("few bindings"),
                resource: buffer.as_entire_binding(),
            }));
        }
        let descriptor = wgpu::BindGroupDescriptor { label: None, layout: &layout, entries: &entries };
        let group = self.device.create_bind_group(&descriptor);
        let mut encoder = self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        {
            let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
            pass.set_pipeline(&pipeline);
            pass.set_bind_group(0, &group, &[]);
            pass.set_immediates(0, params.bytes());
            let [x, y, z] = kernel.workgroups(params);
            pass.dispatch_workgroups(x, y, z);
        }
        self.queue.submit([encoder.finish()]);
        for (buffer, memory) in buffers.iter().zip(memory) {
            let len = memory.bytes.len();
            memory.bytes = self.download(buffer)[..len].to_vec();
        }
    }

    fn layout(&self, kernel: Kernel) -> wgpu::BindGroupLayout {
        let entries: Vec<_> = (0..)
            .zip(kernel.bindings())
            .map(|(binding, access)| wgpu::BindGroupLayoutEntry {
                binding,
                visibility: wgpu::ShaderStages::COMPUTE,
                ty: wgpu::BindingType::Buffer {
                    ty: wgpu::BufferBindingType::Storage { read_only: *access == Access::Read },
                    has_dynamic_offset: false,
                    min_binding_size: None,
                },
                count: None,
            })
            .collect();
        let descriptor = wgpu::BindGroupLayoutDescriptor { label: None, entries: &entries };
        self.device.create_bind_group_layout(&descriptor)
    }

    fn pipeline(
        &self,
        kernel: Kernel,
        params: &Params,
        layout: &wgpu::BindGroupLayout,
    ) -> wgpu::ComputePipeline {
        let source = wgpu::ShaderSource::Wgsl(kernel.source().into());
        let module = wgpu::ShaderModuleDescriptor { label: None, source };
        let module = self.device.create_shader_module(module);
        let layout = self.device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: None,
            bind_group_layouts: &[Some(layout)],
            immediate_size: u32::try_from(params.bytes().len()).expect("at most 128 bytes"),
        });
        self.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: None,
            layout: Some(&layout),
            module: &module,
            entry_point: Some("main"),
            compilation_options: wgpu::PipelineCompilationOptions {
                zero_initialize_workgroup_memory: false,
                ..Default::default()
            },
            cache: None,
        })
    }

    /// A buffer of whole words.
    fn upload(&self, bytes: &[u8]) -> wgpu::Buffer {
        let mut words = bytes.to_vec();
        words.resize(bytes.len().next_multiple_of(4), 0);
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::COPY_SRC;
        let buffer = self.buffer(words.len() as u64, usage);
        self.queue.write_buffer(&buffer, 0, &words);
        buffer
    }

    fn download(&self, buffer: &wgpu::Buffer) -> Vec<u8> {
        let staging = self.buffer(buffer.size(), wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST);
        let mut encoder = self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        encoder.copy_buffer_to_buffer(buffer, 0, &staging, 0, buffer.size());
        self.queue.submit([encoder.finish()]);
        staging.slice(..).map_async(wgpu::MapMode::Read, |result| result.expect("a readable buffer"));
        self.device.poll(wgpu::PollType::wait_indefinitely()).expect("a device that is there");
        staging.slice(..).get_mapped_range().expect("a mapped buffer").to_vec()
    }

    fn buffer(&self, size: u64, usage: wgpu::BufferUsages) -> wgpu::Buffer {
        self.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size,
            usage,
            mapped_at_creation: false,
        })
    }
}
