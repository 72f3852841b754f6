//! A loaded model with one sequence.

use std::sync::Arc;

use minfer_gguf::Mapping;
use minfer_graph::{BackendError, CacheStats, Runner, WeightId};
use minfer_tensor::Bytes;
use minfer_text::{Message, RenderOptions, Specials, TokenId};

use crate::bench::{BenchDemand, BenchOptions, BenchRun, bench, demand};
use crate::context::Context;
use crate::generate::{Event, GenerateOptions, Generation, generate};
use crate::machine::Machine;
use crate::plan::Offload;
use crate::planner::Resolution;
use crate::report::report;
use crate::score::{Score, ScoredPosition, score};
use crate::source::weight_bytes;
use crate::{CancelFlag, Error, ModelFile, Plan, Planned};

/// How far a load has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadProgress {
    /// Weight bytes that are registered.
    pub done: Bytes,
    /// Weight bytes in all.
    pub total: Bytes,
}

/// A loaded model with one sequence: its KV cache, graphs and buffers, all of them created at load.
pub struct Engine {
    file: ModelFile,
    plan: Plan,
    /// What the caller said that it holds.
    caller: Bytes,
    context: Context,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("path", &self.file.path()).finish_non_exhaustive()
    }
}

impl Engine {
    /// Commits a plan that was admitted: buffers are created whole, weights registered where the plan says.
    ///
    /// Right before, the device's memory is asked for once more (rule B6). If the device can't hold the weights, all of it
    /// is released and the model is loaded on the CPU, with a note in the plan (rule O6).
    ///
    /// # Errors
    /// [`Error::Refused`] before a weight is read if the plan doesn't fit; otherwise what the file or the device fails with.
    pub fn load(
        planned: Planned,
        machine: &dyn Machine,
        on_progress: &mut dyn FnMut(LoadProgress),
    ) -> Result<Self, Error> {
        planned.check()?;
        let planned = planned.sample_again(machine)?;
        match commit(&planned, machine, on_progress) {
            Ok(context) => Ok(Self::of(planned, context)),
            Err(Failure::Device(error)) => {
                let planned = planned.without_device(&error)?;
                let context = commit(&planned, machine, on_progress).map_err(Error::from)?;
                Ok(Self::of(planned, context))
            }
            Err(Failure::Load(error)) => Err(error),
        }
    }

    fn of(planned: Planned, context: Context) -> Self {
        let (file, Resolution { plan, caller, .. }) = planned.into_parts();
        Self { file, plan, caller, context }
    }

    /// The plan that was committed.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// What is held now, measured, in the shape of the plan.
    pub fn memory_report(&self) -> Plan {
        report(&self.plan, &self.file, &self.context, self.caller)
    }

    /// Where the blocks are, with the bytes of weights that the device itself counts, and whose request that is. `None`
    /// if nothing is on a device.
    pub fn offload_report(&self) -> Option<String> {
        let Plan { offload, backends, request, .. } = &self.plan;
        let runner = self.context.runner();
        let (device, planned) = runner.allocator().ids().zip(backends).next()?;
        let held = runner.memory_report(device).weights_bytes;
        let source = if request.source == "default" { "" } else { &request.source };
        let request = [source, &request.gpu_layers].join(" ");
        (offload.gpu_layers > 0).then(|| {
            let Offload { gpu_layers, n_layers, .. } = offload;
            format!(
                "{gpu_layers} of {n_layers} blocks on {}: {held} of weights ({})",
                planned.device,
                request.trim()
            )
        })
    }

    /// The model's file.
    pub fn model_file(&self) -> &ModelFile {
        &self.file
    }

    /// Positions of the context.
    pub fn n_ctx(&self) -> usize {
        self.context.n_ctx()
    }

    /// Tokens whose keys and values are in the cache.
    pub fn committed(&self) -> &[TokenId] {
        self.context.committed()
    }

    /// How often graphs were built and found again.
    pub fn graph_stats(&self) -> CacheStats {
        self.context.runner().stats()
    }

    /// The ids of a prompt: special tokens parsed, BOS as the model says.
    pub fn encode(&self, text: &str) -> Result<Vec<TokenId>, Error> {
        self.encode_with(text, Specials::ALL)
    }

    /// The ids of a rendered chat template. Most templates write BOS themselves.
    pub(crate) fn encode_rendered(&self, text: &str) -> Result<Vec<TokenId>, Error> {
        let tokenizer = self.file.tokenizer()?;
        let bos = tokenizer.special_ids().bos;
        let has_bos = bos.is_some_and(|id| text.as_bytes().starts_with(tokenizer.token_bytes(id)));
        self.encode_with(text, if has_bos { Specials::PARSE } else { Specials::ALL })
    }

    /// The ids of a text that goes on after others.
    pub(crate) fn encode_rest(&self, text: &str) -> Result<Vec<TokenId>, Error> {
        self.encode_with(text, Specials::PARSE)
    }

    fn encode_with(&self, text: &str, specials: Specials) -> Result<Vec<TokenId>, Error> {
        self.file.tokenizer()?.encode(text, specials).map_err(Error::Encode)
    }

    /// The prompt of a conversation, up to where the model's answer begins.
    pub fn render(&self, messages: &[Message]) -> Result<String, Error> {
        let path = || self.file.path().to_owned();
        let template = self.file.chat_template()?.ok_or_else(|| Error::NoTemplate { path: path() })?;
        let (tokenizer, ids) = (self.file.tokenizer()?, self.file.tokenizer()?.special_ids());
        let name = |id: Option<TokenId>| id.map(|id| tokenizer.token_bytes(id)).unwrap_or_default();
        // A special token whose name isn't text can't be spelled out.
        let text = |id| std::str::from_utf8(name(id)).unwrap_or_default();
        let options =
            RenderOptions { bos_token: text(ids.bos), eos_token: text(ids.eos), ..RenderOptions::default() };
        template.render(messages, &options).map_err(|source| Error::Template { path: path(), source })
    }

    /// Continues `prompt`. What the cache already holds of it isn't computed again.
    ///
    /// # Errors
    /// An empty prompt, one that is longer than the context, a bad sampling parameter, a damaged file, a lost device.
    pub fn generate(
        &mut self,
        prompt: &[TokenId],
        options: &GenerateOptions,
        cancel: &CancelFlag,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<Generation, Error> {
        generate(&mut self.context, self.file.tokenizer()?, prompt, options, cancel, on_event)
    }

    /// How well the model predicts `ids`: `on_position` is told each prediction as it is made, with the `top` largest logits.
    /// Nothing is kept, so a text of any length takes the same memory.
    ///
    /// # Errors
    /// A token that the model doesn't have, before anything is told; a damaged file, a lost device.
    pub fn score(
        &mut self,
        ids: &[TokenId],
        top: usize,
        cancel: &CancelFlag,
        on_position: &mut dyn FnMut(&ScoredPosition),
    ) -> Result<Score, Error> {
        // A file without a tokenizer has no BOS either.
        let bos = self.file.tokenizer().ok().and_then(|t| t.special_ids().bos);
        let bos = bos.filter(|id| ids.first() == Some(id));
        score(&mut self.context, ids, bos, top, cancel, on_position)
    }

    /// Measures one repetition of prefill and decode.
    ///
    /// # Errors
    /// If the tokens don't fit the context, and as [`generate`](Self::generate).
    pub fn bench(&mut self, options: BenchOptions, cancel: &CancelFlag) -> Result<BenchRun, Error> {
        bench(&mut self.context, options, cancel)
    }

    /// What such a repetition reads and multiplies, counted from its graphs; nothing is run.
    ///
    /// # Errors
    /// If the tokens don't fit the context.
    pub fn bench_demand(&self, options: BenchOptions) -> Result<BenchDemand, Error> {
        demand(&self.context, options)
    }
}

/// Why a plan couldn't be carried out.
enum Failure {
    /// The device can't have its buffers or the weights.
    Device(minfer_graph::Error),
    /// Anything else.
    Load(Error),
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Device(error) => error.into(),
            Failure::Load(error) => error,
        }
    }
}

/// Creates and fills everything that a plan says.
fn commit(
    planned: &Planned,
    machine: &dyn Machine,
    on_progress: &mut dyn FnMut(LoadProgress),
) -> Result<Context, Failure> {
    let (file, Resolution { plan, memory, params, .. }) = (planned.file(), planned.resolution());
    let load = |error: Error| Failure::Load(error);
    let on_device = |error: minfer_graph::Error| match planned.uses_device() {
        true => Failure::Device(error),
        false => Failure::Load(error.into()),
    };
    let maps = file.index().parts().iter().map(|part| Ok(Arc::new(Mapping::open(part)?)));
    let mut maps = maps.collect::<Result<Vec<_>, Error>>().map_err(load)?;
    let mut backends = Vec::with_capacity(memory.backends().len());
    if planned.uses_device() {
        backends.push(machine.open_device().map_err(|error| on_device(error.into()))?);
    } else if let Some(spec) = planned.device_spec() {
        // A device that gets nothing isn't opened.
        backends.push(minfer_graph::idle(spec));
    }
    let cpu = machine.open_cpu(plan.request.repack);
    backends.push(cpu.map_err(|error| load(minfer_graph::Error::from(error).into()))?);
    let mut runner = Runner::new(backends, memory.clone()).map_err(|error| match &error {
        minfer_graph::Error::Backend(BackendError::OutOfMemory { backend, .. })
            if planned.uses_device() && *backend == memory.backends()[0].name =>
        {
            Failure::Device(error)
        }
        _ => load(error.into()),
    })?;
    register_weights(&mut runner, file, &maps, on_progress).map_err(|error| match error {
        Error::Run(error) => on_device(error),
        other => load(other),
    })?;
    runner.verify_weights().map_err(on_device)?;
    maps.iter().try_for_each(|map| map.check()).map_err(|error| load(error.into()))?;
    // Whose weights were all copied may change from now on.
    maps.retain(|map| Arc::strong_count(map) > 1);
    Ok(Context::new(file, maps, runner, *params, plan.request.batch))
}

fn register_weights(
    runner: &mut Runner,
    file: &ModelFile,
    maps: &[Arc<Mapping>],
    on_progress: &mut dyn FnMut(LoadProgress),
) -> Result<(), Error> {
    let weights = file.model().weights();
    let total = weights.iter().filter_map(|decl| decl.shape.nbytes(decl.dtype)).sum();
    let mut done = Bytes::ZERO;
    for (i, decl) in weights.iter().enumerate() {
        let tensor = file.index().tensor(&decl.name);
        let data = tensor.and_then(|tensor| weight_bytes(tensor, decl, maps));
        let data =
            data.ok_or_else(|| Error::Weight { path: file.path().to_owned(), name: decl.name.clone() })?;
        done = done.saturating_add(Bytes::from(data.as_slice().len()));
        runner.register_weight(WeightId::new(i), &data)?;
        on_progress(LoadProgress { done, total });
    }
    Ok(())
}
