//! Sessions over fake backends and random models.
#![allow(dead_code, clippy::unwrap_used, reason = "every test binary uses its part, and may panic")]

use std::sync::Arc;

use minfer_graph::*;
use minfer_tensor::{Bytes, DType};
use minfer_testkit::fake::{FakeBackend, FakeSpec, Probe, Reference, weight_data};
use minfer_testkit::random::{RandomModel, VOCAB};
use minfer_testkit::rng::Rng;

pub(crate) const BATCH: usize = 12;

/// What a session is made of: one CPU, or a device before it.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) model: RandomModel,
    pub(crate) specs: Vec<FakeSpec>,
    pub(crate) budgets: Vec<Budget>,
    pub(crate) gpu_layers: u32,
}

impl Setup {
    pub(crate) fn cpu(seed: u64) -> Self {
        let specs = vec![FakeSpec::cpu()];
        Self { model: RandomModel::new(seed), specs, budgets: vec![Budget::Unbounded], gpu_layers: 0 }
    }

    pub(crate) fn split(seed: u64, gpu_layers: u32) -> Self {
        let model = RandomModel::new(seed);
        let gpu_layers = gpu_layers.min(model.n_layers);
        let specs = vec![FakeSpec::device(), FakeSpec::cpu()];
        Self { model, specs, budgets: vec![Budget::Unbounded; 2], gpu_layers }
    }

    pub(crate) fn graphs(&self) -> Vec<ComputeGraph> {
        rungs(BATCH).map(|rung| self.model.graph(rung)).collect()
    }

    pub(crate) fn offload(&self) -> OffloadPlan {
        OffloadPlan { gpu_layers: self.gpu_layers, n_layers: self.model.n_layers }
    }

    pub(crate) fn plan(&self) -> MemoryPlan {
        let spec = |spec: &FakeSpec| Arc::new(spec.clone()) as Arc<dyn DeviceSpec>;
        let backends: Vec<_> = self.specs.iter().map(spec).zip(self.budgets.iter().copied()).collect();
        MemoryPlan::resolve(&PlanRequest {
            backends: &backends,
            offload: self.offload(),
            weights: &self.model.weights,
            mapped: &vec![true; self.model.weights.len()],
            host: Bytes::ZERO,
            states: &self.model.states,
            graphs: &self.graphs(),
        })
        .unwrap()
    }

    pub(crate) fn backends(&self) -> (Vec<Box<dyn Backend>>, Vec<Arc<Probe>>) {
        let fakes = self.specs.iter().cloned().map(FakeBackend::new);
        fakes
            .map(|fake| {
                let probe = fake.probe();
                (Box::new(fake) as Box<dyn Backend>, probe)
            })
            .unzip()
    }

    pub(crate) fn params(&self, rung: Rung) -> GraphParams {
        let cparams = CParams { gpu_layers: self.gpu_layers, kv_dtype: DType::F32, n_ctx: self.model.n_ctx };
        GraphParams { rung, cparams }
    }

    /// A session with all weights.
    pub(crate) fn start(&self) -> (Runner, Vec<Arc<Probe>>) {
        let (backends, probes) = self.backends();
        let mut runner = Runner::new(backends, self.plan()).unwrap();
        for (index, decl) in self.model.weights.iter().enumerate() {
            runner.register_weight(WeightId::new(index), &weight_data(decl, true)).unwrap();
        }
        (runner, probes)
    }

    pub(crate) fn reference(&self) -> Reference {
        Reference::new(&self.model.weights, &self.model.states)
    }
}

/// The host's side of a run: inputs at the rung, rows beyond the counts filled with what must not matter.
pub(crate) struct Batch {
    pub(crate) rung: Rung,
    pub(crate) counts: BatchCounts,
    tokens: Vec<u8>,
    positions: Vec<u8>,
    extra: Vec<u8>,
    out_ids: Vec<u8>,
}

impl Batch {
    /// `tokens` tokens from position `past` on, all outputs among the last ones.
    pub(crate) fn new(random: &mut Rng, rung: Rung, counts: BatchCounts, past: usize) -> Self {
        let ints = |values: Vec<i32>| values.into_iter().flat_map(i32::to_le_bytes).collect::<Vec<u8>>();
        let padded = |n: usize, live: usize, mut value: Box<dyn FnMut(usize) -> i32 + '_>| {
            ints((0..n).map(|i| if i < live { value(i) } else { -1 }).collect())
        };
        let first_out = counts.tokens.saturating_sub(counts.outputs);
        let positions = padded(rung.tokens, counts.tokens, Box::new(|i| (past + i) as i32));
        let out_ids = padded(rung.outputs, counts.outputs, Box::new(|i| (first_out + i) as i32));
        let extra = (0..4 * 32 * 4).map(|_| random.below(256) as u8).collect();
        let tokens = padded(rung.tokens, counts.tokens, Box::new(|_| random.below(VOCAB) as i32));
        Self { rung, counts, tokens, positions, extra, out_ids }
    }

    pub(crate) fn random(random: &mut Rng, past: usize) -> Self {
        let tokens = 1 + random.below(BATCH);
        let outputs = if tokens == 1 { 1 } else { random.below(tokens + 1) };
        let rung = rung_for(BATCH, tokens, outputs).unwrap();
        Self::new(random, rung, BatchCounts { tokens, outputs }, past)
    }

    pub(crate) fn fill(&self) -> Vec<(&str, &[u8])> {
        let mut fill: Vec<(&str, &[u8])> =
            vec![("tokens", &self.tokens), ("positions", &self.positions), ("extra", &self.extra)];
        if self.rung.outputs > 0 {
            fill.push(("out_ids", &self.out_ids));
        }
        fill
    }

    /// The same batch at another rung.
    pub(crate) fn at(&self, rung: Rung) -> Self {
        let pad = |data: &[u8], live: usize, n: usize| {
            let mut data = data[..4 * live].to_vec();
            data.resize(4 * n, 0xFF);
            data
        };
        Self {
            rung,
            counts: self.counts,
            tokens: pad(&self.tokens, self.counts.tokens, rung.tokens),
            positions: pad(&self.positions, self.counts.tokens, rung.tokens),
            extra: self.extra.clone(),
            out_ids: pad(&self.out_ids, self.counts.outputs, rung.outputs),
        }
    }
}

/// Runs a batch; gives the live rows of every output.
pub(crate) fn run(runner: &mut Runner, setup: &Setup, batch: &Batch) -> Vec<Vec<u8>> {
    let graph = setup.model.graph(batch.rung);
    let live = |&id: &NodeId| {
        let node = graph.node(id);
        let row = node.dtype.row_bytes(node.shape.cols).unwrap().get() as usize;
        node.rows.live(node.shape, batch.counts) * row
    };
    let sizes: Vec<usize> = graph.outputs().iter().map(live).collect();
    runner
        .run(&setup.params(batch.rung), || Ok(graph), &batch.fill(), batch.counts, &CancelFlag::new())
        .unwrap();
    let read = |(index, &size): (usize, &usize)| {
        let mut out = vec![0; size];
        runner.read_output(index, &mut out).unwrap();
        out
    };
    sizes.iter().enumerate().map(read).collect()
}

/// The sum of what exists, asked from the backend, as the report should have it.
pub(crate) fn measured(runner: &Runner, id: BackendId) -> [Bytes; 4] {
    let backend = runner.allocator().backend(id);
    let of = |kind| backend.buffer_bytes(kind);
    [backend.weights_bytes(), of(BufKind::Kv), of(BufKind::Pool), of(BufKind::Scratch)]
}
