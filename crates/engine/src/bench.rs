//! Prefill and decode speed.

use std::time::{Duration, Instant};

use minfer_graph::Counters;
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
}

/// One measured part of a repetition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// How long it took, sampling not included.
    pub time: Duration,
    /// What the device did in that time; zeros without one.
    pub work: Counters,
}

/// What one repetition measured; `None` for what wasn't asked for, or was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    let n_vocab = context.n_vocab();
    let ids: Vec<TokenId> = (0..options.depth + options.prompt.max(options.generate))
        .map(|i| ((i * 7919 + 13) % n_vocab) as TokenId)
        .collect();
    let (filled, rest) = ids.split_at(options.depth);
    context.truncate(0);
    if !filled.is_empty() && !context.prefill(filled, cancel, &mut |_, _| {})? {
        return Ok(BenchRun { prompt: None, generate: None });
    }
    let mut prompt = None;
    if options.prompt > 0 {
        let whole = &rest[..options.prompt];
        prompt = measure(context, |context| context.prefill(whole, cancel, &mut |_, _| {}))?;
        context.truncate(options.depth);
    }
    let generate = match options.generate {
        0 => None,
        n => measure(context, |context| decode(context, &rest[..n], cancel))?,
    };
    Ok(BenchRun { prompt, generate })
}

/// Time and work of `part`, unless it was cancelled.
fn measure(
    context: &mut Context,
    part: impl FnOnce(&mut Context) -> Result<bool, Error>,
) -> Result<Option<Measured>, Error> {
    let (before, start) = (device_work(context), Instant::now());
    let done = part(context)?;
    let time = start.elapsed();
    Ok(done.then(|| Measured { time, work: device_work(context).since(before) }))
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
