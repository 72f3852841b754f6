//! Prefill and decode speed.

use std::time::{Duration, Instant};

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

/// The times of one repetition; `None` for what wasn't asked for, or was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BenchRun {
    /// Time of the prefill.
    pub prompt: Option<Duration>,
    /// Time of the decode, sampling not included.
    pub generate: Option<Duration>,
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
        let start = Instant::now();
        let done = context.prefill(&rest[..options.prompt], cancel, &mut |_, _| {})?;
        prompt = done.then(|| start.elapsed());
        context.truncate(options.depth);
    }
    let generate = decode(context, &rest[..options.generate], cancel)?;
    Ok(BenchRun { prompt, generate })
}

fn decode(context: &mut Context, ids: &[TokenId], cancel: &CancelFlag) -> Result<Option<Duration>, Error> {
    let start = Instant::now();
    for &id in ids {
        if cancel.is_cancelled() || !context.decode(id, cancel)? {
            return Ok(None);
        }
    }
    Ok((!ids.is_empty()).then(|| start.elapsed()))
}
