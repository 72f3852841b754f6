//! The closed ladder of graph shapes (rule B2) and the cache of the graphs built for them (rule A10).

use minfer_tensor::DType;

/// The most output rows of one run.
pub const MAX_OUTPUT_ROWS: usize = 32;

/// No fewer than the ladder of any batch up to 2^32 has shapes.
pub const MAX_CACHED_GRAPHS: usize = 64;

/// The shape of a run: how many rows its graph is built for. What is really there is data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rung {
    /// Tokens.
    pub tokens: usize,
    /// Rows of logits.
    pub outputs: usize,
}

/// Parameters of the computation that change its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CParams {
    /// Blocks on the device: the assignment is topology (rule O5).
    pub gpu_layers: u32,
    /// Element type of keys and values.
    pub kv_dtype: DType,
    /// Positions that the context holds.
    pub n_ctx: usize,
}

/// What a graph is built for: its reuse identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GraphParams {
    /// Shape.
    pub rung: Rung,
    /// Everything else.
    pub cparams: CParams,
}

/// The rungs of tokens for runs of up to `batch`: 1, 8, 32, then times 4; the last is exactly `batch` (at least 1).
pub fn ladder(batch: usize) -> impl Iterator<Item = usize> {
    let batch = batch.max(1);
    let steps = std::iter::successors(Some(8usize), |rung| rung.checked_mul(4));
    std::iter::once(1).chain(steps).take_while(move |&rung| rung < batch).chain(std::iter::once(batch))
}

/// All shapes for runs of up to `batch` tokens, smallest first: a rung of tokens with no output, one, or as many as fit.
/// A single token always has its output.
pub fn rungs(batch: usize) -> impl Iterator<Item = Rung> {
    ladder(batch).flat_map(|tokens| {
        let outputs = [0, 1, tokens.min(MAX_OUTPUT_ROWS)];
        let first = if tokens == 1 { 2 } else { 0 };
        outputs.into_iter().skip(first).map(move |outputs| Rung { tokens, outputs })
    })
}

/// The smallest shape that holds `tokens` and `outputs`. `None` beyond `batch`, or for more outputs than a run has.
pub fn rung_for(batch: usize, tokens: usize, outputs: usize) -> Option<Rung> {
    rungs(batch).find(|rung| rung.tokens >= tokens && rung.outputs >= outputs)
}

/// How often graphs were built and found again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Graphs that were built.
    pub builds: u64,
    /// Runs that found theirs.
    pub reuses: u64,
}

/// Values by [`GraphParams`], the most recently used first, at most [`MAX_CACHED_GRAPHS`].
#[derive(Debug)]
pub struct GraphCache<T> {
    entries: Vec<(GraphParams, T)>,
    stats: CacheStats,
}

impl<T> Default for GraphCache<T> {
    fn default() -> Self {
        Self { entries: Vec::with_capacity(MAX_CACHED_GRAPHS), stats: CacheStats::default() }
    }
}

impl<T> GraphCache<T> {
    /// Moves the value of `params` to the front, if it is there, and counts the reuse.
    pub fn try_reuse(&mut self, params: &GraphParams) -> bool {
        let found = self.entries.iter().position(|(p, _)| p == params);
        if let Some(at) = found {
            self.entries[..=at].rotate_right(1);
            self.stats.reuses += 1;
        }
        found.is_some()
    }

    /// Puts a value that was just built in front; gives back the one that falls out.
    pub fn insert(&mut self, params: GraphParams, value: T) -> Option<T> {
        self.stats.builds += 1;
        let evicted = (self.entries.len() == MAX_CACHED_GRAPHS).then(|| self.entries.pop()).flatten();
        self.entries.insert(0, (params, value));
        evicted.map(|(_, value)| value)
    }

    /// The most recently used value.
    pub fn front(&self) -> Option<&T> {
        self.entries.first().map(|(_, value)| value)
    }

    /// The parameters of the most recently used value.
    pub fn front_params(&self) -> Option<&GraphParams> {
        self.entries.first().map(|(params, _)| params)
    }

    /// Builds and reuses so far.
    pub fn stats(&self) -> CacheStats {
        self.stats
    }

    /// Values that are held.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether none is held.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b2_the_ladder_is_closed() {
        for (batch, expected) in
            [(512, &[1, 8, 32, 128, 512][..]), (100, &[1, 8, 32, 100]), (8, &[1, 8]), (1, &[1]), (0, &[1])]
        {
            assert_eq!(ladder(batch).collect::<Vec<_>>(), expected);
        }
        for batch in [1, 2, 8, 9, 31, 100, 512] {
            for tokens in 0..=batch {
                for outputs in 0..=tokens.min(MAX_OUTPUT_ROWS) {
                    let rung = rung_for(batch, tokens, outputs).unwrap();
                    assert!(rung.tokens >= tokens && rung.outputs >= outputs);
                    let fewer = rungs(batch).filter(|r| r.tokens < rung.tokens);
                    assert!(fewer.into_iter().all(|r| r.tokens < tokens || r.outputs < outputs));
                }
            }
            assert_eq!(rung_for(batch, batch + 1, 0), None);
        }
        assert_eq!(rung_for(512, 100, 33), None);
        assert_eq!(
            rungs(8).map(|r| (r.tokens, r.outputs)).collect::<Vec<_>>(),
            [(1, 1), (8, 0), (8, 1), (8, 8)]
        );
    }

    #[test]
    fn a10_the_cache_holds_the_whole_ladder() {
        for batch in [1, 512, 4096, 1 << 20, 1 << 32] {
            assert!(rungs(batch).count() <= MAX_CACHED_GRAPHS);
        }
    }

    #[test]
    fn a10_the_least_recently_used_falls_out() {
        let params = |tokens| GraphParams {
            rung: Rung { tokens, outputs: 1 },
            cparams: CParams { gpu_layers: 0, kv_dtype: DType::F16, n_ctx: 64 },
        };
        let mut cache = GraphCache::default();
        for tokens in 0..MAX_CACHED_GRAPHS {
            assert!(!cache.try_reuse(&params(tokens)));
            assert_eq!(cache.insert(params(tokens), tokens), None);
        }
        assert!(cache.try_reuse(&params(0)));
        assert_eq!(cache.front(), Some(&0));
        assert_eq!(cache.insert(params(MAX_CACHED_GRAPHS), MAX_CACHED_GRAPHS), Some(1));
        assert_eq!(cache.len(), MAX_CACHED_GRAPHS);
        assert_eq!(cache.stats(), CacheStats { builds: MAX_CACHED_GRAPHS as u64 + 1, reuses: 1 });
    }
}
