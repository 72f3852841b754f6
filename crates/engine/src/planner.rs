//! From a model file and options to the plan: what is asked for, what it takes, whether it fits.

use minfer_graph::{BudgetExceeded, CParams, DeviceMemory, MemoryPlan, OffloadPlan, StateDecl, block_of};
use minfer_models::Model;
use minfer_tensor::Bytes;

use crate::alternatives::alternatives;
use crate::plan::{BlockMemory, ModelInfo, Offload, Plan, Refusal, RepackChoice, Request};
use crate::report::planned_memory;
use crate::resolver::Resolver;
use crate::{Error, Host, ModelFile, Options, missing_note, room};

/// A plan for reading, and what a load commits: the same plan for the allocator, and what its graphs depend on.
#[derive(Debug)]
pub(crate) struct Resolution {
    pub(crate) plan: Plan,
    pub(crate) memory: MemoryPlan,
    pub(crate) params: CParams,
    /// The part of the host's bytes that the caller answers for.
    pub(crate) caller: Bytes,
}

/// Plans without loading. Pure: `host` has all the answers. A plan that doesn't fit is a [`Plan`] too, with its refusal.
///
/// # Errors
/// A setting that can't be read, and a model that no backend has kernels for.
pub fn plan(file: &ModelFile, options: &Options, host: &Host) -> Result<Plan, Error> {
    Ok(resolve(file, options, host)?.plan)
}

/// [`plan`], with what a load commits.
pub(crate) fn resolve(file: &ModelFile, options: &Options, host: &Host) -> Result<Resolution, Error> {
    let model = file.model();
    let resolver = Resolver::new(file, options, host)?;
    let minfer_graph::Offload { plan: offload, note } = resolver.offload()?;
    let memory = resolver.memory(offload)?;
    let (n_ctx, states) = (resolver.n_ctx, &resolver.states);
    let refusal = memory.admit().err().map(|error| refusal(error, &memory));
    let specs = host.device.iter().map(|device| &device.spec).chain([host.cpu(options.repacks())]);
    let backends = memory.backends().iter().zip(specs).zip(&resolver.answers).zip(memory.headroom());
    let remarks = [
        note.clone(),
        missing_note(file.index()),
        context_note(n_ctx, model),
        host_note(&memory, options, host),
    ];
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
            note,
        },
        backends: backends
            .map(|(((planned, spec), answer), left)| planned_memory(planned, spec, answer, left))
            .collect(),
        blocks: blocks(model, &resolver, &offload, &memory),
        repack_choices: Vec::new(),
        kv_bytes_per_token: states.iter().filter_map(StateDecl::nbytes).sum::<Bytes>().get()
            / n_ctx.max(1) as u64,
        alternatives: refusal
            .as_ref()
            .map_or_else(Vec::new, |refused| alternatives(file, options, host, &refused.backend)),
        fits: refusal.is_none(),
        refusal,
        notes: remarks.into_iter().flatten().chain(resolver.notes.iter().cloned()).collect(),
    };
    let repack_choices = repack_choices(resolver, options.repacks(), &memory);
    let plan = Plan { repack_choices, ..plan };
    let params = CParams { gpu_layers: offload.gpu_layers, kv_dtype: options.kv_type, n_ctx };
    Ok(Resolution { plan, memory, params, caller: options.caller })
}

/// Both choices, planned and admitted alike; `chosen` is the plan of the one that was asked for.
fn repack_choices(resolver: Resolver<'_>, repacks: bool, chosen: &MemoryPlan) -> Vec<RepackChoice> {
    let choice = |repack, memory: &MemoryPlan| {
        let cpu = memory.backends().last()?;
        let mapped = cpu.weights.mapped;
        let anonymous = cpu.charges().total().saturating_sub(mapped);
        let fits = memory.admit().is_ok();
        Some(RepackChoice { repack, mapped_bytes: mapped.get(), anonymous_bytes: anonymous.get(), fits })
    };
    let other = resolver.with_repack(!repacks);
    let other = other.offload().and_then(|offload| other.memory(offload.plan)).ok();
    let other = other.and_then(|memory| choice(!repacks, &memory));
    let mut choices: Vec<RepackChoice> = choice(repacks, chosen).into_iter().chain(other).collect();
    choices.sort_by_key(|choice| !choice.repack);
    choices
}

/// Without a budget nothing is refused, but a plan that the system has no room for is worth a warning (rule B5).
fn host_note(memory: &MemoryPlan, options: &Options, host: &Host) -> Option<String> {
    let DeviceMemory::Reported { free, .. } = host.memory else { return None };
    let room = room(free);
    let (cpu, devices) = memory.backends().split_last()?;
    let shared = devices.iter().filter(|device| device.unified);
    let total = shared.chain([cpu]).map(|backend| backend.charges().total()).sum::<Bytes>();
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
        repack: options.repacks(),
    }
}

/// The refusal of a plan: the whole of it is named, and the part of it that a shorter context makes smaller.
fn refusal(error: BudgetExceeded, memory: &MemoryPlan) -> Refusal {
    let whole = memory.backends().iter().find(|plan| plan.name == error.backend);
    let whole = whole.map(|plan| (plan.charges().total(), plan.kv));
    let whole = whole.map(|(total, kv)| format!("; the plan takes {total}, keys and values {kv} of it"));
    let shared = memory.backends().split_last().filter(|(cpu, _)| cpu.name == error.backend);
    let shared = shared.and_then(|(_, devices)| devices.iter().find(|device| device.unified));
    let shared = shared.map(|device| {
        format!(", beside {} of {}, whose memory is the host's", device.charges().total(), device.name)
    });
    Refusal {
        message: format!("{error}{}{}", whole.unwrap_or_default(), shared.unwrap_or_default()),
        weights: error.weights.get(),
        pooled: error.pooled.get(),
        request: error.request.get(),
        budget: error.budget.get(),
        backend: error.backend,
    }
}

fn blocks(
    model: &Model,
    Resolver { states, read, .. }: &Resolver<'_>,
    offload: &OffloadPlan,
    memory: &MemoryPlan,
) -> Vec<BlockMemory> {
    let of_block = |index: usize| {
        let here = u32::try_from(index).ok();
        let weights = model.weights().iter().zip(read).filter(|(_, read)| **read);
        let weights = weights.filter(|(decl, _)| block_of(&decl.name) == here);
        let weights = weights.filter_map(|(decl, _)| decl.shape.nbytes(decl.dtype)).sum::<Bytes>();
        let kv = states.iter().filter(|s| Some(s.layer) == here).filter_map(StateDecl::nbytes).sum::<Bytes>();
        let names = memory.backends();
        let on_device = here.is_some_and(|block| block < offload.gpu_layers);
        let backend = if on_device { names.first() } else { names.last() };
        let backend = backend.map_or_else(String::new, |plan| plan.name.clone());
        BlockMemory { index, backend, weights_bytes: weights.get(), kv_bytes: kv.get() }
    };
    (0..model.config().n_layers()).map(of_block).collect()
}
