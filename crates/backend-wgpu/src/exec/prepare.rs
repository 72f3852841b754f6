//! Turns a segment into a program: one pass over its nodes, in execution order.

use minfer_graph::{BackendError, CNode, NodeId, Op};
use minfer_tensor::{Bytes, DType};

use super::places::{Place, Places};
use super::{Cost, Launch, LiveRows, Program, Step, steps};
use crate::device::Gpu;
use crate::error::{refused, unsupported};
use crate::kernels::{Kernel, Params};
use crate::pipelines::Pipelines;

pub(super) type Result<T> = std::result::Result<T, BackendError>;

/// Checks a segment and resolves it to a program.
pub(crate) fn prepare(gpu: &Gpu, pipelines: &mut Pipelines, places: Places<'_>) -> Result<Program> {
    gpu.check()?;
    let mut preparer = Preparer { gpu, pipelines, places, steps: Vec::new() };
    for &id in preparer.places.segment.nodes {
        preparer.node(id)?;
    }
    let Preparer { places, steps, .. } = preparer;
    let mut buffers = places.used;
    buffers.sort_unstable();
    buffers.dedup();
    Ok(Program { steps, buffers, products: gpu.products_at_once() })
}

/// A program in the making.
pub(super) struct Preparer<'a> {
    pub(super) gpu: &'a Gpu,
    pipelines: &'a mut Pipelines,
    pub(super) places: Places<'a>,
    steps: Vec<Step>,
}

impl<'a> Preparer<'a> {
    fn node(&mut self, id: NodeId) -> Result<()> {
        match &self.get(id).op {
            Op::Weight(_) | Op::Input(_) | Op::State(_) | Op::Reshape | Op::SliceRows { .. } => Ok(()),
            Op::GetRows => steps::get_rows(self, id),
            Op::MatMul => steps::mat_mul(self, id),
            Op::RmsNorm { eps } => steps::rms_norm(self, id, *eps),
            Op::Add | Op::Glu(_) => steps::zip(self, id),
            Op::Scale { .. } | Op::Softcap { .. } => steps::map(self, id),
            Op::Rope(spec) => steps::rope(self, id, spec),
            Op::WriteRows => steps::write_rows(self, id),
            Op::Attention(spec) => steps::attention(self, id, spec),
        }
    }

    /// A node of the graph.
    pub(super) fn get(&self, id: NodeId) -> &'a CNode {
        self.places.segment.graph.node(id)
    }

    /// Where an f32 operand lies.
    pub(super) fn floats(&mut self, id: NodeId) -> Result<Place> {
        self.typed(id, DType::F32)
    }

    /// Where a column of ids or positions lies.
    pub(super) fn integers(&mut self, id: NodeId) -> Result<Place> {
        self.typed(id, DType::I32)
    }

    fn typed(&mut self, id: NodeId, dtype: DType) -> Result<Place> {
        let node = self.get(id);
        if node.dtype == dtype { self.places.readable(id) } else { Err(unsupported(&node.op, node.dtype)) }
    }

    /// Appends a step that runs one kernel for the rows of `counted`.
    pub(super) fn push(
        &mut self,
        counted: NodeId,
        kernel: Kernel,
        params: Params,
        places: &[&Place],
        cost: Cost,
    ) -> Result<()> {
        self.push_variants(counted, &[(0, kernel)], params, places, cost)
    }

    /// Appends a step that runs the last of `kernels` whose number of rows is reached.
    pub(super) fn push_variants(
        &mut self,
        counted: NodeId,
        kernels: &[(usize, Kernel)],
        params: Params,
        places: &[&Place],
        cost: Cost,
    ) -> Result<()> {
        let node = self.get(counted);
        let rows = LiveRows { rows: node.rows, shape: node.shape };
        let mut launches = Vec::with_capacity(kernels.len());
        let mut known = None;
        for &(from, kernel) in kernels {
            let pipeline = self.pipelines.get(self.gpu, kernel)?;
            let group = match known.take() {
                Some((layout, group)) if layout == kernel.bindings() => group,
                _ => self.bind(&pipeline.layout, places)?,
            };
            known = Some((kernel.bindings(), group.clone()));
            launches.push((from, Launch { kernel, pipeline, group }));
        }
        self.steps.push(Step { rows, launches, params, cost });
        Ok(())
    }

    /// Buffers are bound whole; where a value starts in its buffer is a parameter.
    fn bind(&self, layout: &wgpu::BindGroupLayout, places: &[&Place]) -> Result<wgpu::BindGroup> {
        let entries: Vec<_> = (0..)
            .zip(places)
            .map(|(binding, place)| wgpu::BindGroupEntry {
                binding,
                resource: place.buffer.as_entire_binding(),
            })
            .collect();
        let descriptor = wgpu::BindGroupDescriptor { label: None, layout, entries: &entries };
        self.gpu.scoped(Bytes::ZERO, || self.gpu.device.create_bind_group(&descriptor))
    }
}

/// A size or an offset as kernels count.
pub(super) fn word(id: NodeId, count: usize) -> Result<u32> {
    u32::try_from(count).map_err(|_| refused(id, "is too large for the kernels"))
}
