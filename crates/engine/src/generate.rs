//! The generation loop: prefill, then sample, decode, and hand out text until something ends it.

use std::time::{Duration, Instant};

use minfer_text::{Detokenizer, Sampler, SamplingParams, StreamState, TokenId, TokenKind, Tokenizer};
use serde::Serialize;

use crate::context::Context;
use crate::{CancelFlag, Error};

/// What a generation is asked for.
#[derive(Clone, Debug)]
pub struct GenerateOptions {
    /// Tokens to generate at most; `None` goes on to the end of the context.
    pub max_tokens: Option<usize>,
    /// How the next token is chosen.
    pub sampling: SamplingParams,
    /// Texts that end the generation; they are not part of the result.
    pub stops: Vec<String>,
    /// Goes on past the model's end-of-generation tokens.
    pub ignore_eos: bool,
}

/// Why a generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StopReason {
    /// The model said so.
    Eos,
    /// A stop string.
    Stop,
    /// The number of tokens.
    Length,
    /// The context is full.
    Context,
    /// The caller.
    Cancelled,
}

/// What happens while a generation runs.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// Tokens of the prompt that are done.
    Prefill {
        /// Tokens done.
        done: usize,
        /// Tokens in all.
        total: usize,
    },
    /// Text that is certain: whole characters, and no part of a stop string.
    Text(&'a str),
}

/// What a generation gave.
#[derive(Clone, Debug)]
pub struct Generation {
    /// The text.
    pub text: String,
    /// Tokens of the prompt, those that were in the cache already included.
    pub prompt_tokens: usize,
    /// The generated tokens, without the one that ended the generation.
    pub ids: Vec<TokenId>,
    /// Why it ended.
    pub stop: StopReason,
    /// Time of the prefill.
    pub prefill: Duration,
    /// Time of all decode steps.
    pub decode: Duration,
}

/// Continues the sequence `prompt`. What the cache already holds of it is not computed again; afterwards the cache holds the
/// prompt and the generated tokens, as far as they were committed.
pub(crate) fn generate(
    context: &mut Context,
    tokenizer: &Tokenizer,
    prompt: &[TokenId],
    options: &GenerateOptions,
    cancel: &CancelFlag,
    on_event: &mut dyn FnMut(Event<'_>),
) -> Result<Generation, Error> {
    let start = Instant::now();
    let mut run = Run::new(context, tokenizer, prompt, options)?;
    let prefilled = run.prefill(cancel, on_event)?;
    let prefill = start.elapsed();
    let start = Instant::now();
    let stop = if prefilled { run.decode(cancel, on_event)? } else { StopReason::Cancelled };
    let Run { text, ids, .. } = run;
    Ok(Generation { text, prompt_tokens: prompt.len(), ids, stop, prefill, decode: start.elapsed() })
}

struct Run<'a> {
    context: &'a mut Context,
    tokenizer: &'a Tokenizer,
    prompt: &'a [TokenId],
    options: &'a GenerateOptions,
    sampler: Sampler,
    stream: Detokenizer,
    text: String,
    ids: Vec<TokenId>,
}

impl<'a> Run<'a> {
    fn new(
        context: &'a mut Context,
        tokenizer: &'a Tokenizer,
        prompt: &'a [TokenId],
        options: &'a GenerateOptions,
    ) -> Result<Self, Error> {
        let n_ctx = context.n_ctx();
        if prompt.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        if prompt.len() > n_ctx {
            return Err(Error::PromptTooLong { n_prompt: prompt.len(), n_ctx });
        }
        let room = (n_ctx - prompt.len() + 1).min(options.max_tokens.unwrap_or(usize::MAX));
        let sampler = Sampler::new(options.sampling, context.n_vocab())?;
        let stream = Detokenizer::new(options.stops.iter().cloned());
        let (text, ids) = (String::with_capacity(8 * room), Vec::with_capacity(room));
        Ok(Self { context, tokenizer, prompt, options, sampler, stream, text, ids })
    }

    /// Computes what the cache lacks of the prompt: at least its last token, whose logits are needed.
    fn prefill(&mut self, cancel: &CancelFlag, on_event: &mut dyn FnMut(Event<'_>)) -> Result<bool, Error> {
        let shared = self.prompt.iter().zip(self.context.committed()).take_while(|(a, b)| a == b).count();
        let keep = shared.min(self.prompt.len() - 1);
        self.context.truncate(keep);
        let total = self.prompt.len() - keep;
        self.context.prefill(&self.prompt[keep..], cancel, &mut |done, _| {
            on_event(Event::Prefill { done, total });
        })
    }

    fn decode(
        &mut self,
        cancel: &CancelFlag,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<StopReason, Error> {
        let stop = loop {
            if self.ids.len() >= self.options.max_tokens.unwrap_or(usize::MAX) {
                break StopReason::Length;
            }
            if cancel.is_cancelled() {
                break StopReason::Cancelled;
            }
            let id = self.sampler.sample(self.context.logits(), self.context.committed())?;
            if self.tokenizer.is_eog(id) && !self.options.ignore_eos {
                break StopReason::Eos;
            }
            self.ids.push(id);
            // A control token steers the model and is no text.
            let control = self.tokenizer.kind(id) == TokenKind::Control;
            let bytes = if control { &[][..] } else { self.tokenizer.token_bytes(id) };
            if self.emit(on_event, |stream, text| stream.push(bytes, text)) != StreamState::Open {
                return Ok(StopReason::Stop);
            }
            if self.context.committed().len() == self.context.n_ctx() {
                break StopReason::Context;
            }
            if self.ids.len() < self.options.max_tokens.unwrap_or(usize::MAX) {
                // Cancelled or not: the next round asks the flag.
                self.context.decode(id, cancel)?;
            }
        };
        self.emit(on_event, Detokenizer::finish);
        Ok(stop)
    }

    /// Hands out the text that `step` makes certain.
    fn emit(
        &mut self,
        on_event: &mut dyn FnMut(Event<'_>),
        step: impl FnOnce(&mut Detokenizer, &mut String) -> StreamState,
    ) -> StreamState {
        let before = self.text.len();
        let state = step(&mut self.stream, &mut self.text);
        if self.text.len() > before {
            on_event(Event::Text(&self.text[before..]));
        }
        state
    }
}
