//! How well a model predicts a text.

use minfer_graph::cache::MAX_OUTPUT_ROWS;
use minfer_text::TokenId;
use serde::Serialize;

use crate::context::Context;
use crate::{CancelFlag, Error};

/// The prediction made after one token.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ScoredPosition {
    /// The token.
    pub token: TokenId,
    /// Natural logarithm of the probability of the next token; `None` after the last one.
    pub logprob: Option<f64>,
    /// Logarithm of the sum of the exponentials of all logits.
    pub logsumexp: f64,
    /// The largest logits, largest first; ties by id.
    pub top: Vec<(TokenId, f32)>,
}

/// The score of a text: sums over its positions, which aren't kept.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Score {
    /// Tokens that were scored.
    pub n_tokens: usize,
    /// Mean of the negated [`logprob`](ScoredPosition::logprob); `None` for a single token.
    pub mean_nll: Option<f64>,
    /// `exp(mean_nll)`.
    pub perplexity: Option<f64>,
    /// Windows that the text was scored in: more than one if it is longer than the context.
    pub windows: usize,
    /// Whether the work was cancelled before the end.
    pub cancelled: bool,
}

/// Scores `ids`, one position after the other into `on_position`. A text longer than the context is scored in windows that
/// start anew, each with `bos` where the model has one.
///
/// What it holds doesn't depend on the length of the text: one position, and a candidate for each token of the
/// vocabulary, which [`Context::heap_bound`] counts.
pub(crate) fn score(
    context: &mut Context,
    ids: &[TokenId],
    bos: Option<TokenId>,
    top: usize,
    cancel: &CancelFlag,
    on_position: &mut dyn FnMut(&ScoredPosition),
) -> Result<Score, Error> {
    // What is known to fail fails before anything is told.
    if let Some(&id) = ids.iter().find(|&&id| id as usize >= context.n_vocab()) {
        return Err(Error::Token { id, n_vocab: context.n_vocab() });
    }
    let mut sums = Sums::default();
    let mut position = ScoredPosition { token: 0, logprob: None, logsumexp: 0.0, top: Vec::new() };
    let mut windows = 0;
    let chunk_len = MAX_OUTPUT_ROWS.min(context.batch());
    while sums.n_tokens < ids.len() && !cancel.is_cancelled() {
        context.truncate(0);
        windows += 1;
        // The first window begins as the text does. A context of one position has no room for anything but the token.
        if let Some(bos) = bos.filter(|_| windows > 1 && context.n_ctx() > 1) {
            context.forward(&[bos], 0..0, cancel)?;
        }
        let room = context.n_ctx() - context.committed().len();
        let window = &ids[sums.n_tokens..];
        for chunk in window[..room.min(window.len())].chunks(chunk_len) {
            if cancel.is_cancelled() || !context.forward(chunk, 0..chunk.len(), cancel)? {
                break;
            }
            for (row, &token) in chunk.iter().enumerate() {
                let next = ids.get(sums.n_tokens + 1).copied();
                position.set(context.row(row), token, next, top);
                sums.add(&position);
                on_position(&position);
            }
        }
    }
    Ok(sums.score(ids.len(), windows))
}

/// Running sums over positions.
#[derive(Default)]
struct Sums {
    n_tokens: usize,
    n_predicted: usize,
    nll: f64,
}

impl Sums {
    fn add(&mut self, position: &ScoredPosition) {
        self.n_tokens += 1;
        if let Some(logprob) = position.logprob {
            self.n_predicted += 1;
            self.nll -= logprob;
        }
    }

    fn score(&self, n_asked: usize, windows: usize) -> Score {
        let mean_nll = (self.n_predicted > 0).then(|| self.nll / self.n_predicted as f64);
        let perplexity = mean_nll.map(f64::exp);
        Score { n_tokens: self.n_tokens, mean_nll, perplexity, windows, cancelled: self.n_tokens < n_asked }
    }
}

impl ScoredPosition {
    /// Becomes the prediction that `logits` make after `token`, in the memory of the one before.
    fn set(&mut self, logits: &[f32], token: TokenId, next: Option<TokenId>, top: usize) {
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = logits.iter().map(|&l| f64::from(l - max).exp()).sum();
        self.token = token;
        self.logsumexp = f64::from(max) + sum.ln();
        self.logprob = next.map(|id| f64::from(logits[id as usize]) - self.logsumexp);
        set_largest(&mut self.top, logits, top);
    }
}

/// Fills `list` with the `n` largest logits.
fn set_largest(list: &mut Vec<(TokenId, f32)>, logits: &[f32], n: usize) {
    list.clear();
    let n = n.min(logits.len());
    if n == 0 {
        return;
    }
    list.extend((0..).zip(logits.iter().copied()));
    let order = |a: &(TokenId, f32), b: &(TokenId, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
    if n < list.len() {
        list.select_nth_unstable_by(n - 1, order);
    }
    list.truncate(n);
    list.sort_unstable_by(order);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_logits_come_first_and_ties_by_id() {
        let logits = [0.5, 2.0, -1.0, 2.0, 0.0];
        let mut list = vec![(7, 7.0)];
        let mut largest = |n| {
            set_largest(&mut list, &logits, n);
            list.clone()
        };
        assert_eq!(largest(3), [(1, 2.0), (3, 2.0), (0, 0.5)]);
        assert_eq!(largest(0), []);
        assert_eq!(largest(9).len(), 5);
    }

    #[test]
    fn a_position_is_a_normalized_distribution() {
        let mut p = ScoredPosition { token: 0, logprob: None, logsumexp: 0.0, top: Vec::new() };
        p.set(&[1.0, 2.0, 3.0], 7, Some(2), 1);
        let expected = (1f64.exp() + 2f64.exp() + 3f64.exp()).ln();
        assert!(
            (p.logsumexp - expected).abs() < 1e-9 && (p.logprob.unwrap() - (3.0 - expected)).abs() < 1e-9
        );
        p.set(&[0.0], 0, None, 1);
        assert_eq!((p.logprob, p.top), (None, vec![(0, 0.0)]));
    }
}
