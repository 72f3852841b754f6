//! Logits to a token: penalties, truncation, temperature, chance.

mod error;
mod params;
mod random;

pub use error::Error;
use minfer_tensor::Bytes;
pub use params::SamplingParams;
use random::Random;

use crate::tokenizer::TokenId;

/// A token that may be drawn, with its logit, or its weight once that is known.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    logit: f32,
    id: TokenId,
}

/// Draws tokens. All memory is taken when it is made.
///
/// The order is that of the field: repeat penalty, top-k, top-p, min-p, temperature. Truncation thus looks at the
/// model's own distribution, and temperature spreads what is left.
#[derive(Debug, Clone)]
pub struct Sampler {
    params: SamplingParams,
    random: Random,
    seed: u64,
    n_vocab: usize,
    candidates: Vec<Candidate>,
}

impl Sampler {
    /// A sampler for a vocabulary of `n_vocab` tokens, with a random seed if the parameters have none.
    ///
    /// # Errors
    ///
    /// If a parameter is out of its range, or the vocabulary is empty.
    pub fn new(params: SamplingParams, n_vocab: usize) -> Result<Self, Error> {
        params.check()?;
        if n_vocab == 0 {
            return Err(Error::NoLogits);
        }
        let seed = params.seed.unwrap_or_else(random::seed);
        Ok(Self { params, random: Random::new(seed), seed, n_vocab, candidates: Vec::with_capacity(n_vocab) })
    }

    /// The seed in use: with the same one, and the same logits, the same tokens come.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Draws a token from `logits`, one a token; `recent` are the ids so far, the newest last, for the repeat penalty.
    ///
    /// At temperature 0 it is the token with the greatest logit, the first of equals. Allocates nothing.
    ///
    /// # Errors
    ///
    /// If there are more or fewer logits than tokens, or one isn't finite.
    pub fn sample(&mut self, logits: &[f32], recent: &[TokenId]) -> Result<TokenId, Error> {
        if logits.len() != self.n_vocab {
            return Err(Error::WrongLength { found: logits.len(), expected: self.n_vocab });
        }
        if let Some(index) = logits.iter().position(|logit| !logit.is_finite()) {
            return Err(Error::NotFinite { index, logit: logits[index] });
        }
        self.candidates.clear();
        self.candidates.extend((0..).zip(logits).map(|(id, &logit)| Candidate { logit, id }));
        self.penalize(logits, recent);
        if self.params.temperature == 0.0 {
            return Ok(first_maximum(&self.candidates));
        }
        self.truncate();
        Ok(self.draw())
    }

    /// Pushes down the logits of the tokens among the last `repeat_last_n`.
    fn penalize(&mut self, logits: &[f32], recent: &[TokenId]) {
        let penalty = self.params.repeat_penalty;
        if penalty == 1.0 {
            return;
        }
        let window = &recent[recent.len().saturating_sub(self.params.repeat_last_n)..];
        for &id in window {
            let Some(candidate) = self.candidates.get_mut(id as usize) else { continue };
            // A logit that differs from the model's own was penalized already.
            if candidate.logit == logits[id as usize] {
                let factor = if candidate.logit > 0.0 { penalty.recip() } else { penalty };
                candidate.logit = (candidate.logit * factor).clamp(f32::MIN, f32::MAX);
            }
        }
    }

    /// Drops what top-k, top-p and min-p exclude.
    fn truncate(&mut self) {
        let SamplingParams { top_k, top_p, min_p, .. } = self.params;
        if top_k > 0 && top_k < self.candidates.len() {
            self.candidates.select_nth_unstable_by(top_k - 1, best_first);
            self.candidates.truncate(top_k);
        }
        if top_p < 1.0 {
            let kept = nucleus(&mut self.candidates, top_p);
            self.candidates.truncate(kept);
        }
        if min_p > 0.0 {
            // p >= min_p * p_max, in logits.
            let least = greatest(&self.candidates) + min_p.ln();
            self.candidates.retain(|candidate| candidate.logit >= least);
        }
    }

    /// Draws one candidate, each as likely as its softmax at the temperature says.
    fn draw(&mut self) -> TokenId {
        let max = greatest(&self.candidates);
        let temperature = self.params.temperature;
        let mut total = 0.0f64;
        for candidate in &mut self.candidates {
            candidate.logit = ((candidate.logit - max) / temperature).exp();
            total += f64::from(candidate.logit);
        }
        let mut left = self.random.next_unit() * total;
        for candidate in &self.candidates {
            left -= f64::from(candidate.logit);
            if left < 0.0 {
                return candidate.id;
            }
        }
        // Rounding can leave a little; a candidate with weight is right then.
        first_maximum(&self.candidates)
    }

    /// The heap that the sampler holds.
    pub fn heap_bytes(&self) -> Bytes {
        Bytes::from(self.candidates.capacity() * size_of::<Candidate>())
    }

    /// What [`Self::heap_bytes`] will be for a vocabulary of `n_vocab` tokens.
    pub fn heap_bound(n_vocab: usize) -> Bytes {
        Bytes::from(n_vocab.saturating_mul(size_of::<Candidate>()))
    }
}

/// The order by falling logits; the lower id first among equals, so that results don't depend on the selection.
fn best_first(a: &Candidate, b: &Candidate) -> std::cmp::Ordering {
    b.logit.total_cmp(&a.logit).then(a.id.cmp(&b.id))
}

fn greatest(candidates: &[Candidate]) -> f32 {
    candidates.iter().fold(f32::NEG_INFINITY, |max, candidate| max.max(candidate.logit))
}

/// The candidate with the greatest logit, the lowest id among equals; candidates aren't empty.
fn first_maximum(candidates: &[Candidate]) -> TokenId {
    let mut best = candidates[0];
    for &candidate in candidates {
        if candidate.logit > best.logit || (candidate.logit == best.logit && candidate.id < best.id) {
            best = candidate;
        }
    }
    best.id
}

/// Sorts the fewest best candidates that together have the probability `top_p` to the front, and counts them.
///
/// Sorts only as far as needed: some hundred candidates have it even where a vocabulary has hundreds of thousands.
fn nucleus(candidates: &mut [Candidate], top_p: f32) -> usize {
    let max = greatest(candidates);
    let weight = |candidate: &Candidate| f64::from((candidate.logit - max).exp());
    let enough = f64::from(top_p) * candidates.iter().map(weight).sum::<f64>();
    let (mut sorted, mut step, mut sum) = (0, 128, 0.0);
    while sorted < candidates.len() {
        let rest = &mut candidates[sorted..];
        let n = step.min(rest.len());
        if n < rest.len() {
            rest.select_nth_unstable_by(n - 1, best_first);
        }
        rest[..n].sort_unstable_by(best_first);
        for (i, candidate) in rest[..n].iter().enumerate() {
            sum += weight(candidate);
            if sum >= enough {
                return sorted + i + 1;
            }
        }
        sorted += n;
        step *= 4;
    }
    candidates.len()
}

#[cfg(test)]
mod tests;
