//! Tokens in, logits out: the KV cache's logical state and the batches that are run over it.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use minfer_gguf::Mapping;
use minfer_graph::cache::MAX_OUTPUT_ROWS;
use minfer_graph::{
    BackendError, BatchCounts, CParams, ComputeGraph, GraphParams, Reads, Rung, Runner, StateDecl, rung_for,
};
use minfer_models::{Model, OUT_IDS, POSITIONS, TOKENS};
use minfer_tensor::Bytes;
use minfer_text::{Sampler, TokenId};

use crate::{CancelFlag, Error, ModelFile};

/// One sequence: which tokens the KV cache holds, and the logits of the last rows.
pub(crate) struct Context {
    model: Arc<Model>,
    path: PathBuf,
    maps: Vec<Arc<Mapping>>,
    runner: Runner,
    cparams: CParams,
    states: Vec<StateDecl>,
    batch: usize,
    /// Tokens whose keys and values are in the cache, by position. Never grows beyond its capacity of `n_ctx`.
    committed: Vec<TokenId>,
    staging: Staging,
    logits: Vec<f32>,
}

/// The host side of a graph's inputs, as little-endian i32.
#[derive(Default)]
struct Staging {
    tokens: Vec<u8>,
    positions: Vec<u8>,
    out_ids: Vec<u8>,
}

impl Staging {
    fn with_capacity(batch: usize) -> Self {
        let room = |n: usize| Vec::with_capacity(n * size_of::<i32>());
        Self { tokens: room(batch), positions: room(batch), out_ids: room(MAX_OUTPUT_ROWS) }
    }

    /// Token ids are below `n_vocab` and positions below `n_ctx`, both of which the model's configuration bounds by an i32.
    fn fill(&mut self, ids: &[TokenId], n_past: usize, outputs: &Range<usize>, rung: Rung) {
        pad(&mut self.tokens, ids.iter().map(|&id| id as i32), rung.tokens);
        pad(&mut self.positions, (0..ids.len()).map(|i| (n_past + i) as i32), rung.tokens);
        pad(&mut self.out_ids, outputs.clone().map(|i| i as i32), rung.outputs);
    }

    fn heap_bytes(&self) -> usize {
        self.tokens.capacity() + self.positions.capacity() + self.out_ids.capacity()
    }
}

/// Writes `values` and pads to `len` with -1, the mark of a row that isn't there.
fn pad(bytes: &mut Vec<u8>, values: impl Iterator<Item = i32>, len: usize) {
    bytes.clear();
    for value in values.chain(std::iter::repeat(-1)).take(len) {
        bytes.extend_from_slice(&value.to_le_bytes());
    }
}

impl Context {
    pub(crate) fn new(
        file: &ModelFile,
        maps: Vec<Arc<Mapping>>,
        runner: Runner,
        cparams: CParams,
        batch: usize,
    ) -> Self {
        let (model, path) = (Arc::clone(file.model()), file.path().to_owned());
        let states = runner.plan().scheduler().states().to_vec();
        let n_logits = MAX_OUTPUT_ROWS.min(batch) * model.config().n_vocab;
        Self {
            model,
            path,
            maps,
            runner,
            cparams,
            states,
            batch,
            committed: Vec::with_capacity(cparams.n_ctx),
            staging: Staging::with_capacity(batch),
            // No zeroes: the system would hand those out at the first use only, and the plan was admitted for now.
            logits: vec![f32::NAN; n_logits],
        }
    }

    /// Positions of the context.
    pub(crate) fn n_ctx(&self) -> usize {
        self.cparams.n_ctx
    }

    /// Tokens of the model.
    pub(crate) fn n_vocab(&self) -> usize {
        self.model.config().n_vocab
    }

    /// Largest number of tokens in one run.
    pub(crate) fn batch(&self) -> usize {
        self.batch
    }

    /// Tokens in the cache.
    pub(crate) fn committed(&self) -> &[TokenId] {
        &self.committed
    }

    /// Forgets all tokens from position `n` on. Their rows stay in the cache and are overwritten before they are read.
    pub(crate) fn truncate(&mut self, n: usize) {
        self.committed.truncate(n);
    }

    /// The logits `[n_vocab]` after the last token of [`prefill`](Self::prefill) or [`decode`](Self::decode).
    pub(crate) fn logits(&self) -> &[f32] {
        &self.logits[..self.n_vocab()]
    }

    pub(crate) fn runner(&self) -> &Runner {
        &self.runner
    }

    /// The graph that a batch of `counts`, which fit, is run on.
    pub(crate) fn graph(&self, counts: BatchCounts) -> Result<ComputeGraph, Error> {
        let rung = rung_for(self.batch, counts.tokens, counts.outputs).expect("the batch fits");
        Ok(self.model.build(rung.tokens, rung.outputs, &self.states)?)
    }

    /// Bytes a second of a plain read of `reads` by the CPU; `None` without them, and if not all of the model is there.
    pub(crate) fn measure_read(&mut self, reads: Option<&Reads>) -> Result<Option<f64>, Error> {
        let Some(reads) = reads.filter(|_| self.cparams.gpu_layers == 0) else { return Ok(None) };
        let cpu = self.runner.allocator().cpu();
        Ok(self.runner.measure_read(cpu, reads)?)
    }

    /// Products a second of the CPU; otherwise as [`measure_read`](Self::measure_read).
    pub(crate) fn measure_products(&mut self, reads: Option<&Reads>) -> Result<Option<f64>, Error> {
        if reads.is_none() || self.cparams.gpu_layers > 0 {
            return Ok(None);
        }
        let cpu = self.runner.allocator().cpu();
        Ok(self.runner.measure_products(cpu)?)
    }

    /// Bytes of the heap that this side of the engine holds.
    pub(crate) fn heap_bytes(&self) -> Bytes {
        let bytes = self.logits.capacity() * size_of::<f32>()
            + self.committed.capacity() * size_of::<TokenId>()
            + self.staging.heap_bytes();
        Bytes::from(bytes)
    }

    /// What [`heap_bytes`](Self::heap_bytes) will be, and the candidates of a sampler; saturates.
    pub(crate) fn heap_bound(n_ctx: usize, batch: usize, n_vocab: usize) -> Bytes {
        let logits = MAX_OUTPUT_ROWS.min(batch).saturating_mul(n_vocab).saturating_mul(size_of::<f32>());
        let ids = n_ctx.saturating_add(batch.saturating_mul(2)).saturating_add(MAX_OUTPUT_ROWS);
        let ids = ids.saturating_mul(size_of::<TokenId>());
        [Bytes::from(logits), Bytes::from(ids), Sampler::heap_bound(n_vocab)].into_iter().sum()
    }

    /// Adds `ids` to the cache in batches; afterwards [`logits`](Self::logits) are those after the last one. `false` if it
    /// was cancelled: then the cache ends at the last batch that was run.
    pub(crate) fn prefill(
        &mut self,
        ids: &[TokenId],
        cancel: &CancelFlag,
        on_progress: &mut dyn FnMut(usize, usize),
    ) -> Result<bool, Error> {
        let mut done = 0;
        for chunk in ids.chunks(self.batch) {
            if cancel.is_cancelled() {
                return Ok(false);
            }
            let last = done + chunk.len() == ids.len();
            let outputs = if last { chunk.len() - 1..chunk.len() } else { 0..0 };
            if !self.forward(chunk, outputs, cancel)? {
                return Ok(false);
            }
            done += chunk.len();
            on_progress(done, ids.len());
        }
        Ok(!cancel.is_cancelled())
    }

    /// Adds one token; `false` if it was cancelled.
    pub(crate) fn decode(&mut self, id: TokenId, cancel: &CancelFlag) -> Result<bool, Error> {
        self.forward(&[id], 0..1, cancel)
    }

    /// Adds one batch and computes the logits of the rows `outputs` of it, in [`rows`](Self::row)
    /// `0..outputs.len()`. On an error, and if it was cancelled (`false`), the cache is as before.
    pub(crate) fn forward(
        &mut self,
        ids: &[TokenId],
        outputs: Range<usize>,
        cancel: &CancelFlag,
    ) -> Result<bool, Error> {
        let (n_past, n_vocab) = (self.committed.len(), self.n_vocab());
        debug_assert!(ids.len() <= self.batch && outputs.len() <= MAX_OUTPUT_ROWS);
        if n_past + ids.len() > self.cparams.n_ctx {
            return Err(Error::PromptTooLong { n_prompt: n_past + ids.len(), n_ctx: self.cparams.n_ctx });
        }
        if let Some(&id) = ids.iter().find(|&&id| id as usize >= n_vocab) {
            return Err(Error::Token { id, n_vocab });
        }
        let counts = BatchCounts { tokens: ids.len(), outputs: outputs.len() };
        let rung = rung_for(self.batch, counts.tokens, counts.outputs).expect("checked above");
        self.staging.fill(ids, n_past, &outputs, rung);
        let (model, states) = (&self.model, &self.states);
        let inputs: [(&str, &[u8]); 3] = [
            (TOKENS, &self.staging.tokens),
            (POSITIONS, &self.staging.positions),
            (OUT_IDS, &self.staging.out_ids),
        ];
        let inputs = if rung.outputs == 0 { &inputs[..2] } else { &inputs[..] };
        let params = GraphParams { rung, cparams: self.cparams };
        let build = || model.build(rung.tokens, rung.outputs, states);
        match self.runner.run(&params, build, inputs, counts, cancel) {
            Err(minfer_graph::Error::Backend(BackendError::Cancelled)) => return Ok(false),
            run => run?,
        }
        self.read_logits(n_past + ids.len(), outputs.len())?;
        self.committed.extend_from_slice(ids);
        Ok(true)
    }

    /// The logits `[n_vocab]` of output row `i` of the last [`forward`](Self::forward).
    pub(crate) fn row(&self, i: usize) -> &[f32] {
        let n_vocab = self.n_vocab();
        &self.logits[i * n_vocab..][..n_vocab]
    }

    /// Reads the logits and makes sure that they come from the file that was loaded.
    fn read_logits(&mut self, position: usize, n_outputs: usize) -> Result<(), Error> {
        let n = n_outputs * self.n_vocab();
        let logits = &mut self.logits[..n];
        if n > 0 {
            // GGUF is little-endian, and so is every machine that its mapped weights can be used on.
            self.runner.read_output(0, bytemuck::cast_slice_mut(logits))?;
        }
        for map in &self.maps {
            map.check()?;
        }
        if logits.iter().all(|l| l.is_finite()) {
            return Ok(());
        }
        Err(Error::NotFinite { path: self.path.clone(), position })
    }
}
