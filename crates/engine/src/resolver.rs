//! The bytes of a request, and how many blocks it puts on the device.

use std::sync::Arc;

use minfer_graph::{
    Budget, ComputeGraph, DeviceMemory, DeviceOffer, DeviceSpec, MemoryPlan, Offload, OffloadPlan,
    OffloadRequest, Op, PlanRequest, StateDecl, budget_decision, largest_prefix, per_block_bytes, rungs,
    supported_blocks, weight_budget,
};
use minfer_models::Model;
use minfer_tensor::Bytes;
use minfer_text::{ChatTemplate, Tokenizer};

use crate::context::Context;
use crate::machine::HostDevice;
use crate::{CpuMem, Error, Host, ModelFile, Options, Reserve, parse_mib, parse_request, room};

/// What a plan follows from, but for the number of blocks on the device: built once, asked for many plans.
pub(crate) struct Resolver<'a> {
    file: &'a ModelFile,
    options: &'a Options,
    host: &'a Host,
    /// Positions of the context.
    pub(crate) n_ctx: usize,
    n_batch: usize,
    /// Keys and values.
    pub(crate) states: Vec<StateDecl>,
    graphs: Vec<ComputeGraph>,
    mapped: Vec<bool>,
    /// Whether a graph reads a weight, by weight: a file may have some that its family has no use for.
    pub(crate) read: Vec<bool>,
    backends: Vec<(Arc<dyn DeviceSpec>, Budget)>,
    /// The answers that the budgets come from, by backend.
    pub(crate) answers: Vec<DeviceMemory>,
    /// Remarks on the budgets.
    pub(crate) notes: Vec<String>,
    /// What was asked for.
    request: OffloadRequest,
    /// The device's budget, where one was given.
    gpu_mem: Option<Bytes>,
}

impl<'a> Resolver<'a> {
    /// Reads the settings and builds the graphs of all rungs.
    ///
    /// # Errors
    /// A setting that can't be read, and a model that has no such graphs.
    pub(crate) fn new(file: &'a ModelFile, options: &'a Options, host: &'a Host) -> Result<Self, Error> {
        let model = file.model();
        let n_ctx = options.n_ctx(model.config().n_ctx_train);
        let n_batch = options.n_batch(n_ctx);
        let request = options.gpu_layers.as_ref().map(parse_request).transpose()?.unwrap_or_default();
        let gpu_mem = options.gpu_mem.as_ref().map(parse_mib).transpose()?;
        let states = model
            .states(n_ctx, options.kv_type)
            .map_err(|source| Error::Model { path: file.path().to_owned(), source })?;
        let graphs = graphs(model, n_batch, &states)?;
        let (mut backends, mut answers, mut notes) = (Vec::new(), Vec::new(), Vec::new());
        if let Some(HostDevice { spec, memory }) = &host.device {
            let decision = budget_decision(gpu_mem, memory);
            backends.push((Arc::clone(spec), decision.budget));
            answers.push(memory.clone());
            notes.extend(decision.note);
        }
        let (answer, budget) = cpu_budget(options, host)?;
        backends.push((Arc::clone(host.cpu(options.repacks())), budget));
        answers.push(answer);
        let mut read = vec![false; model.weights().len()];
        for node in graphs.iter().flat_map(ComputeGraph::nodes) {
            if let Op::Weight(id) = node.op {
                read[id.index()] = true;
            }
        }
        let mapped = mapped_weights(file);
        Ok(Self {
            file,
            options,
            host,
            n_ctx,
            n_batch,
            states,
            graphs,
            mapped,
            read,
            backends,
            answers,
            notes,
            request,
            gpu_mem,
        })
    }

    /// The bytes of a number of blocks on the device; whether they fit is [`MemoryPlan::admit`]'s question.
    pub(crate) fn memory(&self, offload: OffloadPlan) -> Result<MemoryPlan, Error> {
        MemoryPlan::resolve(&PlanRequest {
            backends: &self.backends,
            offload,
            weights: self.file.model().weights(),
            mapped: &self.mapped,
            host: host_bound(self.file, self.n_ctx, self.n_batch).saturating_add(self.options.caller),
            states: &self.states,
            graphs: &self.graphs,
        })
        .map_err(too_large)
    }

    /// The same request with weights of the CPU repacked or not.
    pub(crate) fn with_repack(mut self, repack: bool) -> Self {
        if let Some((cpu, _)) = self.backends.last_mut() {
            *cpu = Arc::clone(self.host.cpu(repack));
        }
        self
    }

    /// How many blocks go to the device (rules O2, O7, O8, B2).
    ///
    /// # Errors
    /// [`Error::Refused`] for an automatic fit to a device that doesn't know its memory.
    pub(crate) fn offload(&self) -> Result<Offload, Error> {
        let n_layers = self.n_layers();
        let Some(device) = &self.host.device else {
            let without = self.request.plan(n_layers, None);
            return Ok(Offload { note: self.host.no_device.clone().or(without.note), ..without });
        };
        let offload = self.fit(device, self.options.reserve)?;
        if self.request != OffloadRequest::Auto {
            return Ok(offload);
        }
        let (other, name) = match self.options.reserve {
            Reserve::Quarter => (Reserve::Exact, "exact"),
            Reserve::Exact => (Reserve::Quarter, "quarter"),
        };
        let other = self.fit(device, other)?.plan.gpu_layers;
        let gpu_layers = offload.plan.gpu_layers;
        let more = (other != gpu_layers).then(|| {
            format!("{gpu_layers} of {n_layers} blocks fit; --gpu-reserve {name} would give {other}")
        });
        let notes: Vec<String> = offload.note.into_iter().chain(more).collect();
        Ok(Offload { note: (!notes.is_empty()).then(|| notes.join("; ")), ..offload })
    }

    fn fit(&self, device: &HostDevice, reserve: Reserve) -> Result<Offload, Error> {
        let n_layers = self.n_layers();
        let supported = self.graphs.iter().map(|graph| supported_blocks(&*device.spec, graph, n_layers));
        let auto = self.request == OffloadRequest::Auto;
        let budget = if auto { self.weight_budget(device)? } else { None };
        let quarter = Bytes::new(budget.map_or(0, |budget| budget.get().div_ceil(4)));
        let per_block = self.per_block(device)?;
        let offer = DeviceOffer {
            supported: supported.min().unwrap_or(n_layers),
            budget,
            reserve: if reserve == Reserve::Quarter { quarter } else { Bytes::ZERO },
            per_block: &per_block,
        };
        let Offload { plan, note } = self.request.plan(n_layers, Some(&offer));
        if !auto {
            return Ok(Offload { plan, note });
        }
        let fits = |gpu_layers| self.fits_device(OffloadPlan { gpu_layers, n_layers });
        let gpu_layers = largest_prefix(plan.gpu_layers, fits).unwrap_or(0);
        let none = gpu_layers == 0 && offer.supported > 0 && budget.is_some();
        let note = note.or_else(|| none.then(|| "no block fits the device: running on the CPU".to_owned()));
        Ok(Offload { plan: OffloadPlan { gpu_layers, n_layers }, note })
    }

    /// Whether the exact bytes fit the device, and the host if its memory is the host's.
    fn fits_device(&self, offload: OffloadPlan) -> bool {
        let Ok(memory) = self.memory(offload) else { return false };
        let device = &memory.backends()[0];
        memory.admit().err().is_none_or(|refused| refused.backend != device.name && !device.unified)
    }

    fn weight_budget(&self, device: &HostDevice) -> Result<Option<Bytes>, Error> {
        weight_budget(self.gpu_mem, &device.memory).map_err(|error| {
            Error::Refused(format!("{error}; give its memory with --gpu-mem, or a number with --gpu-layers"))
        })
    }

    /// What each block's weights add to the device.
    fn per_block(&self, device: &HostDevice) -> Result<Vec<Bytes>, Error> {
        let weights = self.file.model().weights().iter().zip(&self.mapped).zip(&self.read);
        let weights = weights
            .filter(|(_, read)| **read)
            .map(|((decl, &mapped), _)| (decl.name.as_str(), device.spec.weight_bytes(decl, mapped).total()));
        per_block_bytes(self.n_layers(), weights)
            .ok_or_else(|| Error::Refused("the weights of the blocks exceed 64 bits in bytes".to_owned()))
    }

    /// Blocks are at most as many as tensors, which an index counts in 32 bits.
    fn n_layers(&self) -> u32 {
        u32::try_from(self.file.model().config().n_layers()).unwrap_or(u32::MAX)
    }
}

/// No memory holds what 64 bits can't count, and no buffer what the device has no buffer for: refusals, not faults.
fn too_large(error: minfer_graph::Error) -> Error {
    match error {
        minfer_graph::Error::Size { .. } => Error::Refused(error.to_string()),
        minfer_graph::Error::TooLarge { .. } => {
            let ways =
                "a smaller --ctx or --kv-type makes it shorter, --gpu-layers auto leaves it to the CPU";
            Error::Refused(format!("{error}; {ways}"))
        }
        other => other.into(),
    }
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
