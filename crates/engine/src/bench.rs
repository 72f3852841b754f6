//! Prefill and decode speed.

use std::time::{Duration, Instant};

use minfer_graph::{BatchCounts, Counters, Demand, Reads};
use minfer_text::TokenId;

use crate::context::Context;
use crate::{CancelFlag, Error};

/// What one repetition measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BenchOptions {
    /// Tokens of the prefill; 0 measures none.
    pub prompt: usize,
    /// Tokens of the decode; 0 measures none.
    pub generate: usize,
    /// Tokens that are in the cache before either.
    pub depth: usize,
    /// Whether the CPU is measured around each part, see [`Limits`]; takes about a tenth of a second each time.
    pub limits: bool,
}

impl BenchOptions {
    /// Positions that a repetition fills.
    fn positions(&self) -> usize {
        self.depth.saturating_add(self.prompt.max(self.generate))
    }
}

/// What the parts of a repetition ask of the hardware, on whatever device; zeros for a part that wasn't asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BenchDemand {
    /// All batches of the prefill.
    pub prompt: Demand,
    /// All steps of the decode.
    pub generate: Demand,
}

/// What the threads of the CPU did right before and right after a part, in loops that do nothing else.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Bytes a second of reading what the last step of the part reads.
    pub read: [f64; 2],
    /// Products of bytes a second, each with its addition.
    pub products: [f64; 2],
}

/// One measured part of a repetition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// How long it took, sampling not included.
    pub time: Duration,
    /// What the device did in that time; zeros without one.
    pub work: Counters,
    /// What the CPU can at best; `None` where it wasn't asked for, or isn't all that runs the model.
    pub limits: Option<Limits>,
}

/// What one repetition measured; `None` for what wasn't asked for, or was cancelled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BenchRun {
    /// The prefill.
    pub prompt: Option<Measured>,
    /// The decode.
    pub generate: Option<Measured>,
}

/// Runs one repetition. The tokens are arbitrary: speed doesn't depend on them.
pub(crate) fn bench(
    context: &mut Context,
    options: BenchOptions,
    cancel: &CancelFlag,
) -> Result<BenchRun, Error> {
    check(context, options)?;
    let n_vocab = context.n_vocab();
    let ids: Vec<TokenId> =
        (0..options.positions()).map(|i| ((i * 7919 + 13) % n_vocab) as TokenId).collect();
    let (filled, rest) = ids.split_at(options.depth);
    context.truncate(0);
    if !filled.is_empty() && !context.prefill(filled, cancel, &mut |_, _| {})? {
        return Ok(BenchRun { prompt: None, generate: None });
    }
    let mut prompt = None;
    if options.prompt > 0 {
        let whole = &rest[..options.prompt];
        let reads = || reads(context, options.depth, options.prompt);
        let reads = options.limits.then(reads).transpose()?;
        prompt = measure(context, reads.as_ref(), |context| context.prefill(whole, cancel, &mut |_, _| {}))?;
        context.truncate(options.depth);
    }
    let mut generate = None;
    if options.generate > 0 {
        let ids = &rest[..options.generate];
        let reads = || reads(context, options.depth + options.generate - 1, 1);
        let reads = options.limits.then(reads).transpose()?;
        generate = measure(context, reads.as_ref(), |context| decode(context, ids, cancel))?;
    }
    Ok(BenchRun { prompt, generate })
}

/// What a repetition asks of the hardware, from the graphs that it runs.
pub(crate) fn demand(context: &Context, options: BenchOptions) -> Result<BenchDemand, Error> {
    check(context, options)?;
    let mut prompt = Vec::new();
    for (n_past, counts) in batches(context, options.depth, options.prompt) {
        prompt.push(Demand::of(&context.graph(counts)?, counts, n_past));
    }
    let step = context.graph(STEP)?;
    let steps = (0..options.generate).map(|i| Demand::of(&step, STEP, options.depth + i));
    Ok(BenchDemand { prompt: prompt.into_iter().sum(), generate: steps.sum() })
}

/// What a decode runs at a time.
const STEP: BatchCounts = BatchCounts { tokens: 1, outputs: 1 };

/// The batches of [`Context::prefill`], each with the positions before it.
fn batches(context: &Context, n_past: usize, tokens: usize) -> impl Iterator<Item = (usize, BatchCounts)> {
    let batch = context.batch();
    (0..tokens).step_by(batch).map(move |done| {
        let n = batch.min(tokens - done);
        (n_past + done, BatchCounts { tokens: n, outputs: usize::from(done + n == tokens) })
    })
}

/// What the last batch of a part reads.
fn reads(context: &Context, n_past: usize, tokens: usize) -> Result<Reads, Error> {
    let last = batches(context, n_past, tokens).last();
    let Some((n_past, counts)) = last else { return Ok(Reads::default()) };
    Ok(Reads::of(&context.graph(counts)?, counts, n_past))
}

fn check(context: &Context, options: BenchOptions) -> Result<(), Error> {
    let (n_prompt, n_ctx) = (options.positions(), context.n_ctx());
    if n_prompt > n_ctx { Err(Error::PromptTooLong { n_prompt, n_ctx }) } else { Ok(()) }
}

/// Time and work of `part`, unless it was cancelled, and with `reads` what the CPU can around it.
fn measure(
    context: &mut Context,
    reads: Option<&Reads>,
    part: impl FnOnce(&mut Context) -> Result<bool, Error>,
) -> Result<Option<Measured>, Error> {
    // The reads are next to the part: memory varies more than arithmetic.
    let products = context.measure_products(reads)?;
    let read = context.measure_read(reads)?;
    let (before, start) = (device_work(context), Instant::now());
    let done = part(context)?;
    let time = start.elapsed();
    let work = device_work(context).since(before);
    let read = read.zip(context.measure_read(reads)?);
    let products = products.zip(context.measure_products(reads)?);
    let limits =
        read.zip(products).map(|(read, products)| Limits { read: read.into(), products: products.into() });
    Ok(done.then_some(Measured { time, work, limits }))
}

fn device_work(context: &Context) -> Counters {
    let alloc = context.runner().allocator();
    let device = alloc.ids().next().filter(|&id| id != alloc.cpu());
    device.map_or_else(Counters::default, |id| alloc.backend(id).counters())
}

fn decode(context: &mut Context, ids: &[TokenId], cancel: &CancelFlag) -> Result<bool, Error> {
    for &id in ids {
        if cancel.is_cancelled() || !context.decode(id, cancel)? {
            return Ok(false);
        }
    }
    Ok(true)
}
