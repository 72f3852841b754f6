//! What accounting costs: how much of a decode step goes into finding its graph, and what a change of graphs costs.
//!
//! `cargo run --release -p minfer-engine --example ledger -- MODEL.gguf [threads]`; `cargo xtask ledger` runs it with the
//! ledger and without, and reads the first line.
#![allow(clippy::print_stdout, reason = "a measurement prints what it measures")]

use std::error::Error;
use std::path::PathBuf;
use std::slice;
use std::sync::Arc;
use std::time::{Duration, Instant};

use minfer_backend_cpu::{CpuBackend, CpuSpec};
use minfer_engine::{
    BenchOptions, CancelFlag, Engine, Host, Machine, ModelFile, Options, Planned, host_memory,
};
use minfer_graph::{
    Backend, BackendError, BackendScheduler, Budget, CParams, DeviceMemory, GraphAllocator, GraphCache,
    GraphParams, OffloadPlan, Rung, StateId, rungs,
};
use minfer_tensor::DType;

const N_CTX: usize = 512;
const N_TOKENS: u32 = 16;
const RUNS: usize = 20;
const ONE: Rung = Rung { tokens: 1, outputs: 1 };

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let path = PathBuf::from(args.next().ok_or("usage: ledger MODEL.gguf [threads]")?);
    let threads = args.next().map_or(Ok(2), |text| text.parse())?;
    let spec = CpuSpec::detect(threads);
    let file = ModelFile::open(&path)?;
    let (mapping, nodes) = mapping_time(&file, spec)?;
    let (reuse, step) = (reuse_time(), step_time(file, spec)?);
    let share = |part: Duration| 100.0 * part.as_secs_f64() / step.as_secs_f64();
    println!("decode step             {:>9.3} ms", 1e3 * step.as_secs_f64());
    println!("finding its graph again {reuse:>12.1?}  {:.6} % of a step, every step", share(reuse));
    println!(
        "mapping {nodes:>4} nodes      {mapping:>12.1?}  {:.3} % of a step, when the graph changes",
        share(mapping)
    );
    Ok(())
}

/// A machine without a device.
struct Cpu(CpuSpec);

impl Machine for Cpu {
    fn device_memory(&self) -> DeviceMemory {
        DeviceMemory::NoDevice
    }

    fn open_device(&self) -> Result<Box<dyn Backend>, BackendError> {
        unreachable!("there is none")
    }

    fn open_cpu(&self, repack: bool) -> Result<Box<dyn Backend>, BackendError> {
        Ok(Box::new(CpuBackend::new(self.0.with_repack(repack))?))
    }
}

/// The mean time of one token in the best of a few runs: others may use the machine too.
fn step_time(file: ModelFile, spec: CpuSpec) -> Result<Duration, Box<dyn Error>> {
    let host = Host {
        cpu: Arc::new(spec.with_repack(false)),
        repacking_cpu: Arc::new(spec),
        threads: spec.threads(),
        cpu_level: spec.kernels().name().to_owned(),
        memory: host_memory(),
        device: None,
        no_device: None,
    };
    let options = Options { ctx: Some(N_CTX), ..Options::default() };
    let planned = Planned::new(file, &options, &host)?;
    let mut engine = Engine::load(planned, &Cpu(spec), &mut |_| {})?;
    let bench = BenchOptions { prompt: 0, generate: N_TOKENS as usize, depth: 1, limits: false };
    let mut best = None;
    for _ in 0..RUNS {
        let run = engine.bench(bench, &CancelFlag::new())?.generate;
        best = run.map(|run| run.time).into_iter().chain(best).min();
    }
    Ok(best.ok_or("no decode was measured")? / N_TOKENS)
}

/// The time to find the front of a full cache: all that a step asks of the books.
fn reuse_time() -> Duration {
    const N: u32 = 1_000_000;
    let cparams = CParams { gpu_layers: 0, kv_dtype: DType::F16, n_ctx: N_CTX };
    let mut cache = GraphCache::default();
    for rung in rungs(512) {
        cache.insert(GraphParams { rung, cparams }, ());
    }
    let params = GraphParams { rung: ONE, cparams };
    let start = Instant::now();
    for _ in 0..N {
        assert!(cache.try_reuse(std::hint::black_box(&params)));
    }
    start.elapsed() / N
}

/// The least time to map the graph of one token, and its nodes.
fn mapping_time(file: &ModelFile, spec: CpuSpec) -> Result<(Duration, usize), Box<dyn Error>> {
    const N: usize = 200;
    let model = file.model();
    let states = model.states(N_CTX, DType::F16)?;
    let graph = model.build(ONE.tokens, ONE.outputs, &states)?;
    let mut alloc = GraphAllocator::new(vec![(Box::new(CpuBackend::new(spec)?), Budget::Unbounded)]);
    let graphs = slice::from_ref(&graph);
    let scheduler = BackendScheduler::new(&alloc, OffloadPlan::cpu_only(0), model.weights(), &states, graphs);
    for (index, decl) in states.iter().enumerate() {
        alloc.create_state(alloc.cpu(), StateId::new(index), decl)?;
    }
    let assignment = scheduler.assign_backends(&alloc, &graph)?;
    let mut best = Duration::MAX;
    for _ in 0..N {
        let start = Instant::now();
        alloc.alloc_graph(&graph, &assignment)?;
        best = best.min(start.elapsed());
    }
    Ok((best, graph.nodes().len()))
}
