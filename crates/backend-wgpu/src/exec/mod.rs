//! Graph segments as programs: the dispatches that `prepare` has resolved, and how they are recorded.
//!
//! A program holds its pipelines and bind groups: buffers don't move (rule A9), so a run records them as they are. What
//! a run changes is data: each dispatch gets its live rows as a parameter.

mod places;
mod prepare;
mod steps;
mod support;

pub(crate) use places::Places;
pub(crate) use prepare::prepare;
pub(crate) use support::supports;

use std::sync::Arc;

use minfer_graph::{BackendError, BatchCounts, BufId, CancelFlag, Rows, Shape};

use crate::device::Gpu;
use crate::kernels::{Kernel, Params};
use crate::pipelines::Pipeline;
use crate::staging::Staging;

/// The rows of a value that a run computes.
#[derive(Clone, Copy, Debug)]
struct LiveRows {
    rows: Rows,
    shape: Shape,
}

impl LiveRows {
    fn count(self, counts: BatchCounts) -> usize {
        self.rows.live(self.shape, counts)
    }
}

/// A kernel and what it is bound to.
#[derive(Debug)]
struct Launch {
    kernel: Kernel,
    pipeline: Arc<Pipeline>,
    group: wgpu::BindGroup,
}

/// One step of a program.
#[derive(Debug)]
struct Step {
    rows: LiveRows,
    /// Kernels by the number of rows from which they are used, in rising order.
    launches: Vec<(usize, Launch)>,
    /// All but the rows.
    params: Params,
    cost: Cost,
}

/// What a step costs.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    /// Bytes of weights that are read once.
    weight_bytes: u64,
    /// Bytes of weights that are read for each row.
    weight_bytes_a_row: u64,
    /// Products for each row, at most.
    products_a_row: u64,
}

/// What a run did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Work {
    pub(crate) dispatches: u64,
    pub(crate) weight_bytes: u64,
}

/// A prepared segment.
#[derive(Debug)]
pub(crate) struct Program {
    steps: Vec<Step>,
    /// Buffers that the steps are bound to.
    buffers: Vec<BufId>,
    /// Products that one submission may have.
    products: u64,
}

impl Program {
    /// Whether a step is bound to the buffer.
    pub(crate) fn uses(&self, id: BufId) -> bool {
        self.buffers.contains(&id)
    }

    /// Submits the program: at once if it is short, else in pieces that end one after the other. It has not ended on
    /// return; a read of the host waits for it.
    pub(crate) fn run(
        &self,
        gpu: &Gpu,
        staging: &mut Staging,
        counts: BatchCounts,
        cancel: &CancelFlag,
    ) -> Result<Work, BackendError> {
        gpu.check()?;
        let mut work = Work::default();
        let (mut rest, mut before) = (self.steps.as_slice(), None);
        while !rest.is_empty() {
            if before.is_some() {
                gpu.wait(before.take())?;
            }
            if cancel.is_cancelled() {
                return Err(BackendError::Cancelled);
            }
            let (piece, later) = rest.split_at(self.length(rest, counts));
            let record = |encoder: &mut wgpu::CommandEncoder| record(encoder, piece, counts, &mut work);
            before = Some(staging.submit(gpu, record)?);
            rest = later;
        }
        Ok(work)
    }

    /// How many of `steps` one submission takes: at least one.
    fn length(&self, steps: &[Step], counts: BatchCounts) -> usize {
        let mut left = self.products;
        let fits = steps.iter().take_while(|step| {
            let products = step.cost.products_a_row.saturating_mul(step.rows.count(counts) as u64);
            let fits = products <= left;
            left = left.saturating_sub(products);
            fits
        });
        fits.count().max(1)
    }
}

/// Records the steps that have rows, in one pass: wgpu puts the barriers between them.
fn record(encoder: &mut wgpu::CommandEncoder, steps: &[Step], counts: BatchCounts, work: &mut Work) {
    let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
    for step in steps {
        let rows = step.rows.count(counts);
        if rows == 0 {
            continue;
        }
        let Some((_, launch)) = step.launches.iter().rfind(|(from, _)| *from <= rows) else { continue };
        let mut params = step.params;
        params.set_rows(rows as u32);
        let [x, y, z] = launch.kernel.workgroups(&params);
        pass.set_pipeline(&launch.pipeline.pipeline);
        pass.set_bind_group(0, &launch.group, &[]);
        pass.set_immediates(0, params.bytes());
        pass.dispatch_workgroups(x, y, z);
        work.dispatches += 1;
        work.weight_bytes += step.cost.weight_bytes + step.cost.weight_bytes_a_row * rows as u64;
    }
}
