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

/// The score of a text.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Score {
    /// Tokens of the text.
    pub n_tokens: usize,
    /// Mean of the negated [`logprob`](ScoredPosition::logprob); `None` for a single token.
    pub mean_nll: Option<f64>,
    /// `exp(mean_nll)`.
    pub perplexity: Option<f64>,
    /// One entry a token.
    pub positions: Vec<ScoredPosition>,
    /// Windows that the text was scored in: more than one if it is longer than the context.
    pub windows: usize,
    /// Whether the work was cancelled before the end.
    pub cancelled: bool,
}

/// Scores `ids`. A text longer than the context is scored in windows that start anew, each with `bos` where the model has
/// one.
pub(crate) fn score(
    context: &mut Context,
    ids: &[TokenId],
    bos: Option<TokenId>,
    top: usize,
    cancel: &CancelFlag,
    on_progress: &mut dyn FnMut(usize, usize),
) -> Result<Score, Error> {
    let mut positions = Vec::with_capacity(ids.len());
    let mut windows = 0;
    let chunk_len = MAX_OUTPUT_ROWS.min(context.batch());
    while positions.len() < ids.len() && !cancel.is_cancelled() {
        context.truncate(0);
        windows += 1;
        // The first window begins as the text does. A context of one position has no room for anything but the token.
        if let Some(bos) = bos.filter(|_| windows > 1 && context.n_ctx() > 1) {
            context.forward(&[bos], 0..0, cancel)?;
        }
        let room = context.n_ctx() - context.committed().len();
        let window = &ids[positions.len()..];
        for chunk in window[..room.min(window.len())].chunks(chunk_len) {
            if cancel.is_cancelled() || !context.forward(chunk, 0..chunk.len(), cancel)? {
                break;
            }
            for (row, &token) in chunk.iter().enumerate() {
                let next = ids.get(positions.len() + 1).copied();
                positions.push(position(context.row(row), token, next, top));
            }
            on_progress(positions.len(), ids.len());
        }
    }
    Ok(summary(positions, ids.len(), windows))
}

fn summary(positions: Vec<ScoredPosition>, n_asked: usize, windows: usize) -> Score {
    let n_tokens = positions.len();
    let nll: Vec<f64> = positions.iter().filter_map(|p| Some(-p.logprob?)).collect();
    let mean_nll = (!nll.is_empty()).then(|| nll.iter().sum::<f64>() / nll.len() as f64);
    let perplexity = mean_nll.map(f64::exp);
    Score { n_tokens, mean_nll, perplexity, positions, windows, cancelled: n_tokens < n_asked }
}

fn position(logits: &[f32], token: TokenId, next: Option<TokenId>, top: usize) -> ScoredPosition {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|&l| f64::from(l - max).exp()).sum();
    let logsumexp = f64::from(max) + sum.ln();
    let logprob = next.map(|id| f64::from(logits[id as usize]) - logsumexp);
    ScoredPosition { token, logprob, logsumexp, top: largest(logits, top) }
}

fn largest(logits: &[f32], n: usize) -> Vec<(TokenId, f32)> {
    let mut all: Vec<(TokenId, f32)> = (0..).zip(logits.iter().copied()).collect();
    let order = |a: &(TokenId, f32), b: &(TokenId, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
    let n = n.min(all.len());
    if n > 0 && n < all.len() {
        all.select_nth_unstable_by(n - 1, order);
    }
    all.truncate(n);
    // One list a position is kept: not with the room of a whole vocabulary.
    all.shrink_to_fit();
    all.sort_unstable_by(order);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_logits_come_first_and_ties_by_id() {
        let logits = [0.5, 2.0, -1.0, 2.0, 0.0];
        assert_eq!(largest(&logits, 3), vec![(1, 2.0), (3, 2.0), (0, 0.5)]);
        assert_eq!(largest(&logits, 0), vec![]);
        assert_eq!(largest(&logits, 9).len(), 5);
        assert!(largest(&logits, 2).capacity() < 5);
    }

    #[test]
    fn a_position_is_a_normalized_distribution() {
        let p = position(&[1.0, 2.0, 3.0], 7, Some(2), 1);
        let expected = (1f64.exp() + 2f64.exp() + 3f64.exp()).ln();
        assert!(
            (p.logsumexp - expected).abs() < 1e-9 && (p.logprob.unwrap() - (3.0 - expected)).abs() < 1e-9
        );
        assert_eq!(position(&[0.0], 0, None, 1).logprob, None);
    }
}
