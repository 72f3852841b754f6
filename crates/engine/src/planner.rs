//! From a model file and options to the plan: what is asked for, what it takes, whether it fits.

use std::sync::Arc;

use minfer_graph::{
    BackendPlan, Budget, BudgetExceeded, CParams, ComputeGraph, DeviceMemory, DeviceSpec, MemoryPlan,
    MemoryReport, OffloadPlan, PlanRequest, StateDecl, block_of, budget_decision, rungs,
};
use minfer_models::Model;
use minfer_tensor::Bytes;
use minfer_text::{ChatTemplate, Tokenizer};

use crate::alternatives::alternatives;
use crate::context::Context;
use crate::plan::{BackendMemory, BlockMemory, MemoryAnswer, ModelInfo, Offload, Plan, Refusal, Request};
use crate::{CpuMem, Error, GpuLayers, ModelFile, Options, missing_note, parse_mib, room};

/// The machine that a plan is for: descriptions and answers only, so that a plan touches no device.
#[derive(Clone)]
pub struct Host {
    /// The CPU backend.
    pub cpu: Arc<dyn DeviceSpec>,
    /// Threads of the CPU backend.
    pub threads: usize,
    /// Kernel table of the CPU backend.
    pub cpu_level: String,
    /// What memory the host has: the answer of [`host_memory`](crate::host_memory()).
    pub memory: DeviceMemory,
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { threads, cpu_level, memory, .. } = self;
        let mut fields = f.debug_struct("Host");
        fields.field("threads", threads).field("cpu_level", cpu_level).field("memory", memory);
        fields.finish_non_exhaustive()
    }
}

/// A plan for reading, and what a load commits: the same plan for the allocator, and what its graphs depend on.
#[derive(Debug)]
pub(crate) struct Resolution {
    pub(crate) plan: Plan,
    pub(crate) memory: MemoryPlan,
    pub(crate) params: CParams,
}

/// Plans without loading. Pure: `host` has all the answers. A plan that doesn't fit is a [`Plan`] too, with its refusal.
///
/// # Errors
/// A setting that can't be read, and a model that no backend has kernels for.
pub fn plan(file: &ModelFile, options: &Options, host: &Host) -> Result<Plan, Error> {
    Ok(resolve(file, options, host)?.plan)
}

/// The bytes of a request, and the host's answer that its budget came from.
pub(crate) struct Resolved {
    pub(crate) memory: MemoryPlan,
    states: Vec<StateDecl>,
    answer: DeviceMemory,
}

/// The bytes of a request; whether they fit is [`MemoryPlan::admit`]'s question.
pub(crate) fn resolve_memory(file: &ModelFile, options: &Options, host: &Host) -> Result<Resolved, Error> {
    let model = file.model();
    let n_ctx = options.n_ctx(model.config().n_ctx_train);
    let n_batch = options.n_batch(n_ctx);
    let (answer, budget) = cpu_budget(options, host)?;
    let states = model.states(n_ctx, options.kv_type).map_err(|source| model_error(file, source))?;
    let memory = MemoryPlan::resolve(&PlanRequest {
        backends: &[(Arc::clone(&host.cpu), budget)],
        offload: OffloadPlan::cpu_only(n_layers(model)),
        weights: model.weights(),
        mapped: &mapped_weights(file),
        host: host_bound(file, n_ctx, n_batch),
        states: &states,
        graphs: &graphs(model, n_batch, &states)?,
    })
    .map_err(too_large)?;
    Ok(Resolved { memory, states, answer })
}

/// No memory holds what 64 bits can't count: a refusal, not a fault.
fn too_large(error: minfer_graph::Error) -> Error {
    match error {
        minfer_graph::Error::Size { .. } => Error::Refused(error.to_string()),
        other => other.into(),
    }
}

/// [`plan`], with what a load commits.
pub(crate) fn resolve(file: &ModelFile, options: &Options, host: &Host) -> Result<Resolution, Error> {
    let model = file.model();
    let n_ctx = options.n_ctx(model.config().n_ctx_train);
    let note = offload_note(options)?;
    let offload = OffloadPlan::cpu_only(n_layers(model));
    let Resolved { memory, states, answer } = resolve_memory(file, options, host)?;
    let refusal = memory.admit().err().map(|error| refusal(error, &memory));
    let plan = Plan {
        schema_version: Plan::SCHEMA_VERSION,
        model: ModelInfo {
            path: file.path().to_owned(),
            architecture: model.config().family.name.to_owned(),
            n_layers: model.config().n_layers(),
            file_bytes: file.file_bytes().get(),
        },
        request: request(options, host, n_ctx),
        offload: Offload {
            gpu_layers: offload.gpu_layers as usize,
            n_layers: offload.n_layers as usize,
            unblocked_on_device: offload.device_holds_unblocked(),
            note: note.clone(),
        },
        backends: memory.backends().iter().map(|b| planned_memory(b, &host.cpu, &answer)).collect(),
        blocks: blocks(model, &states),
        kv_bytes_per_token: states.iter().filter_map(StateDecl::nbytes).sum::<Bytes>().get()
            / n_ctx.max(1) as u64,
        alternatives: if refusal.is_some() { alternatives(file, options, host) } else { Vec::new() },
        fits: refusal.is_none(),
        refusal,
        notes: [
            note,
            missing_note(file.index()),
            context_note(n_ctx, model),
            host_note(&memory, options, host),
        ]
        .into_iter()
        .flatten()
        .collect(),
    };
    let params = CParams { gpu_layers: offload.gpu_layers, kv_dtype: options.kv_type, n_ctx };
    Ok(Resolution { plan, memory, params })
}

/// Without a budget nothing is refused, but a plan that the system has no room for is worth a warning (rule B5).
fn host_note(memory: &MemoryPlan, options: &Options, host: &Host) -> Option<String> {
    let DeviceMemory::Reported { free, .. } = host.memory else { return None };
    let room = room(free);
    let cpu = memory.backends().last()?;
    let total = cpu.charges().total();
    let beyond = options.cpu_mem.is_none() && total > room;
    beyond.then(|| {
        format!("the plan takes {total}, the system has {room} to give; --cpu-mem auto would refuse it")
    })
}

fn context_note(n_ctx: usize, model: &Model) -> Option<String> {
    let trained = model.config().n_ctx_train;
    let beyond = n_ctx > trained;
    beyond.then(|| format!("a context of {n_ctx} is beyond the {trained} positions the model was trained on"))
}

fn model_error(file: &ModelFile, source: minfer_models::ModelError) -> Error {
    Error::Model { path: file.path().to_owned(), source }
}

/// Blocks are at most as many as tensors, which an index counts in 32 bits.
fn n_layers(model: &Model) -> u32 {
    u32::try_from(model.config().n_layers()).unwrap_or(u32::MAX)
}

/// Without a device everything is on the CPU, with a reason where blocks were asked for (rule O2).
fn offload_note(options: &Options) -> Result<Option<String>, Error> {
    if let Some(setting) = options.gpu_mem.as_ref() {
        parse_mib(setting)?;
    }
    let asked = options.gpu_layers.as_ref().filter(|s| !s.value.is_empty());
    let what = match asked.map(GpuLayers::parse).transpose()? {
        Some(GpuLayers::All) => "all blocks",
        Some(GpuLayers::Count(n)) if n > 0 => "blocks",
        _ => return Ok(None),
    };
    Ok(Some(format!("{what} were asked for on a device, but there is none: running on the CPU")))
}

/// The host's answer and budget: unbounded unless `--cpu-mem` says otherwise (rules A2, B5).
fn cpu_budget(options: &Options, host: &Host) -> Result<(DeviceMemory, Budget), Error> {
    let (memory, budget) = match options.cpu_mem.as_ref().map(CpuMem::parse).transpose()? {
        None => (DeviceMemory::NoDevice, Budget::Unbounded),
        Some(CpuMem::Limit(bytes)) => {
            let budget = budget_decision(Some(bytes), &DeviceMemory::NoDevice).budget;
            (DeviceMemory::NoDevice, budget)
        }
        Some(CpuMem::Auto) => match host.memory {
            DeviceMemory::Reported { free, .. } => (host.memory.clone(), Budget::Limited(room(free))),
            _ => (host.memory.clone(), Budget::Unknown),
        },
    };
    Ok((memory, if options.allow_paging { budget.allow_paging() } else { budget }))
}

/// The graphs of all rungs.
fn graphs(model: &Model, batch: usize, states: &[StateDecl]) -> Result<Vec<ComputeGraph>, Error> {
    let build = |rung: minfer_graph::Rung| model.build(rung.tokens, rung.outputs, states);
    Ok(rungs(batch).map(build).collect::<Result<_, _>>()?)
}

/// A weight stays pages of the file unless its declared type isn't the file's: then it is converted.
fn mapped_weights(file: &ModelFile) -> Vec<bool> {
    let same = |decl: &minfer_graph::WeightDecl| {
        file.index().tensor(&decl.name).is_some_and(|tensor| tensor.dtype == decl.dtype)
    };
    file.model().weights().iter().map(same).collect()
}

/// A bound of what the engine itself will hold: index, tokenizer, template, logits and samplers.
fn host_bound(file: &ModelFile, n_ctx: usize, batch: usize) -> Bytes {
    let n_vocab = file.model().config().n_vocab;
    let metadata = file.index().metadata();
    [
        file.index().header_bytes(),
        Tokenizer::heap_bound(metadata),
        ChatTemplate::heap_bound(metadata),
        Context::heap_bound(n_ctx, batch, n_vocab),
    ]
    .into_iter()
    .sum()
}

fn request(options: &Options, host: &Host, n_ctx: usize) -> Request {
    let said = options.gpu_layers.as_ref();
    Request {
        gpu_layers: said.map_or_else(|| "all".to_owned(), |s| s.value.clone()),
        source: said.map_or_else(|| "default".to_owned(), |s| s.source.clone()),
        ctx: n_ctx,
        batch: options.n_batch(n_ctx),
        kv_type: options.kv_type.name().to_lowercase(),
        reserve: options.reserve,
        threads: host.threads,
        cpu_level: host.cpu_level.clone(),
        repack: false,
    }
}

/// The refusal of a plan: the whole of it is named, and the part of it that a shorter context makes smaller.
fn refusal(error: BudgetExceeded, memory: &MemoryPlan) -> Refusal {
    let whole = memory.backends().iter().find(|plan| plan.name == error.backend);
    let whole = whole.map(|plan| (plan.charges().total(), plan.kv));
    let whole = whole.map(|(total, kv)| format!("; the plan takes {total}, keys and values {kv} of it"));
    Refusal {
        message: format!("{error}{}", whole.unwrap_or_default()),
        weights: error.weights.get(),
        pooled: error.pooled.get(),
        request: error.request.get(),
        budget: error.budget.get(),
        backend: error.backend,
    }
}

fn blocks(model: &Model, states: &[StateDecl]) -> Vec<BlockMemory> {
    let of_block = |index: usize| {
        let here = u32::try_from(index).ok();
        let weights = model.weights().iter().filter(|decl| block_of(&decl.name) == here);
        let weights = weights.filter_map(|decl| decl.shape.nbytes(decl.dtype)).sum::<Bytes>();
        let kv = states.iter().filter(|s| Some(s.layer) == here).filter_map(StateDecl::nbytes).sum::<Bytes>();
        BlockMemory { index, backend: "cpu".to_owned(), weights_bytes: weights.get(), kv_bytes: kv.get() }
    };
    (0..model.config().n_layers()).map(of_block).collect()
}

impl From<&DeviceMemory> for MemoryAnswer {
    fn from(memory: &DeviceMemory) -> Self {
        let outcome = |name: &str| Self { outcome: name.to_owned(), ..Self::default() };
        match memory {
            DeviceMemory::Reported { free, total } => {
                Self { free: Some(free.get()), total: Some(total.get()), ..outcome("reported") }
            }
            DeviceMemory::QueryFailed { name } => {
                Self { error: Some(name.clone()), ..outcome("query_failed") }
            }
            DeviceMemory::NoDevice => outcome("no_device"),
        }
    }
}

fn planned_memory(plan: &BackendPlan, spec: &Arc<dyn DeviceSpec>, memory: &DeviceMemory) -> BackendMemory {
    let charges = plan.charges();
    let category = |category| charges.get(category).get();
    let total = charges.total();
    let staging_bytes = category(minfer_graph::Category::Staging);
    BackendMemory {
        name: plan.name.clone(),
        device: spec.device_name(),
        memory: memory.into(),
        budget_bytes: plan.budget.limit().map(Bytes::get),
        weights_bytes: charges.weights().get(),
        kv_bytes: category(minfer_graph::Category::Kv),
        pool_bytes: category(minfer_graph::Category::Pool) + staging_bytes,
        scratch_bytes: category(minfer_graph::Category::Scratch),
        host_bytes: category(minfer_graph::Category::Host),
        total_bytes: total.get(),
        headroom_bytes: plan.budget.headroom(total, plan.weights.mapped).map(Bytes::get),
        staging_bytes,
        mapped_bytes: plan.weights.mapped.get(),
        anonymous_bytes: total.saturating_sub(plan.weights.mapped).get(),
        live_bytes: None,
        peak_live_bytes: None,
        idle_slots: None,
        reserved_classes: None,
    }
}

/// What is held now, in the shape of the plan.
pub(crate) fn report(plan: &Plan, file: &ModelFile, context: &Context) -> Plan {
    let host = measured_host(file, context);
    let alloc = context.runner().allocator();
    let cpu = alloc.cpu();
    let reports = alloc.ids().map(|id| {
        let held = context.runner().memory_report(id);
        // What the ledger charged for the host is the bound; what is reported is what is there.
        let host = if id == cpu { host } else { held.host_bytes };
        MemoryReport { host_bytes: host, ..held }
    });
    let backends = plan.backends.iter().zip(reports).map(|(planned, held)| measured(planned, &held));
    Plan { backends: backends.collect(), ..plan.clone() }
}

fn measured_host(file: &ModelFile, context: &Context) -> Bytes {
    let text = [
        file.loaded_tokenizer().map(Tokenizer::heap_bytes),
        file.loaded_template().map(ChatTemplate::heap_bytes),
    ];
    let own = [file.index().header_bytes(), context.heap_bytes()];
    text.into_iter().flatten().chain(own).sum()
}

fn measured(planned: &BackendMemory, held: &MemoryReport) -> BackendMemory {
    BackendMemory {
        weights_bytes: held.weights_bytes.get(),
        kv_bytes: held.kv_bytes.get(),
        pool_bytes: held.pool_bytes.get(),
        scratch_bytes: held.scratch_bytes.get(),
        host_bytes: held.host_bytes.get(),
        total_bytes: held.total_bytes().get(),
        headroom_bytes: held.headroom_bytes().map(Bytes::get),
        staging_bytes: held.staging_bytes.get(),
        mapped_bytes: held.mapped_bytes.get(),
        anonymous_bytes: held.anonymous_bytes().get(),
        live_bytes: Some(held.live_bytes.get()),
        peak_live_bytes: Some(held.peak_live_bytes.get()),
        idle_slots: Some(held.idle_slots as u64),
        reserved_classes: Some(held.reserved_classes.len() as u64),
        ..planned.clone()
    }
}
