//! Tokens in, logits out: the KV cache's logical state and the batches that are run over it.

use std::path::PathBuf;
use std::sync::Arc;

use minfer_gguf::Mapping;
use minfer_graph::{BatchCounts, CParams, GraphParams, MAX_OUTPUT_ROWS, Runner};
use minfer_models::Model;
use minfer_tensor::Bytes;
use minfer_text::TokenId;

use crate::{CancelFlag, Error};


/// One sequence: which tokens the KV cache holds, and the logits of the last rows.
pub(crate) struct Context {
    model: Arc<Model>,
    path: PathBuf,
    maps: Vec<Arc<Mapping>>,
    runner: Runner,
    params: CParams,
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

    fn heap_bytes(&self) -> usize {
        self.tokens.capacity() + self.positions.capacity() + self.out_ids.capacity()
    }
}

/// Writes `values` and pads to `len` with -1, the mark of a row that isn't there.
fn fill(bytes: &mut Vec<u8>, values: impl Iterator<Item = i32>, len: usize) {
    bytes.clear();
    for value in values.chain(std::iter::repeat(-1)).take(len) {
        bytes.extend_from_slice(&value.to_le_bytes());
    }
}

impl Context {
    pub(crate) fn new(
        model: Arc<Model>,
        path: PathBuf,
        maps: Vec<Arc<Mapping>>,
        runner: Runner,
        params: CParams,
        batch: usize,
    ) -> Self {
        let logits = vec![0.0; MAX_OUTPUT_ROWS.min(batch) * model.config().n_vocab];
        let committed = Vec::with_capacity(params.n_ctx);
        let staging = Staging::with_capacity(batch);
        Self { model, path, maps, runner, params, batch, committed, staging, logits }
    }

    /// Positions of the context.
    pub(crate) fn n_ctx(&self) -> usize {
        self.params.n_ctx
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

    /// Bytes of the heap that this side of the engine holds.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.logits.capacity() * size_of::<f32>()
            + self.committed.capacity() * size_of::<TokenId>()
            + self.staging.heap_bytes()
    }

    /// What [`heap_bytes`](Self::heap_bytes) will be.
    pub(crate) fn heap_bound(n_ctx: usize, batch: usize, n_vocab: usize) -> Option<Bytes> {
        let outputs = MAX_OUTPUT_ROWS.min(batch);
        let elements = outputs.checked_mul(n_vocab)?.checked_add(n_ctx)?.checked_add(2 * batch + MAX_OUTPUT_ROWS)?;
        Some(Bytes::new(elements.checked_mul(4)?.try_into().ok()?))
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
            self.forward(chunk, outputs)?;
            done += chunk.len();
            on_progress(done, ids.len());
        }
        Ok(!cancel.is_cancelled())
    }

    /// Adds one token.
    pub(crate) fn decode(&mut self, id: TokenId) -> Result<(), Error> {
        self.forward(&[id], 0..1)
    }

    /// Adds one batch and computes the logits of the rows `outputs` of it, in [`rows`](Self::row)
    /// `0..outputs.len()`. On an error the cache is as before.
    pub(crate) fn forward(&mut self, ids: &[TokenId], outputs: std::ops::Range<usize>) -> Result<(), Error> {
        let (n_past, n_vocab) = (self.committed.len(), self.n_vocab());
        debug_assert!(ids.len() <= self.batch && outputs.len() <= MAX_OUTPUT_ROWS);
        if n_past + ids.len() > self.params.n_ctx {
            return Err(Error::PromptTooLong { n_prompt: n_past + ids.len(), n_ctx: self.params.n_ctx });
        }
        if let Some(&id) = ids.iter().find(|&&id| id as usize >= n_vocab) {
            return Err(Error::Token { id, n_vocab });
        }
        let counts = BatchCounts { tokens: ids.len(), outputs: outputs.len() };
        let params = self.shape_of(counts)?;
        self.stage(ids, &outputs, params);
        let model = &self.model;
        let inputs: [(&str, &[u8]); 3] = [
            ("tokens", &self.staging.tokens),
            ("positions", &self.staging.positions),
            ("out_ids", &self.staging.out_ids),
        ];
        let used = if params.outputs == 0 { &inputs[..2] } else { &inputs[..] };
        self.runner.run(params, || model.build(params.tokens, params.outputs, &self.params), used, counts)?;
        self.check(n_past + ids.len(), outputs.len())?;
        self.committed.extend_from_slice(ids);
        Ok(())
    }

    /// The logits `[n_vocab]` of output row `i` of the last [`forward`](Self::forward).
    pub(crate) fn row(&self, i: usize) -> &[f32] {
        let n_vocab = self.n_vocab();
        &self.logits[i * n_vocab..][..n_vocab]
    }

    fn stage(&mut self, ids: &[TokenId], outputs: &std::ops::Range<usize>, params: GraphParams) {
        // Token ids are below n_vocab and positions below n_ctx, both of which fit an i32 (checked at load).
        let n_past = self.committed.len();
        fill(&mut self.staging.tokens, ids.iter().map(|&id| id as i32), params.tokens);
        fill(&mut self.staging.positions, (0..ids.len()).map(|i| (n_past + i) as i32), params.tokens);
        fill(&mut self.staging.out_ids, outputs.clone().map(|i| i as i32), params.outputs);
    }

    /// Reads the logits and makes sure that they come from the file that was loaded.
    fn check(&mut self, position: usize, n_outputs: usize) -> Result<(), Error> {
        let n_vocab = self.n_vocab();
        let logits = &mut self.logits[..n_outputs * n_vocab];
        if !logits.is_empty() {
            self.runner.read_output(0, logits)?;
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
