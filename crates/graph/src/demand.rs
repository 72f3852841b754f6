//! What a run of a graph asks of the hardware, known before it runs: bytes to read and numbers to multiply.

use std::collections::{BTreeMap, BTreeSet};
use std::iter::Sum;
use std::ops::Range;

use minfer_tensor::Bytes;

use crate::backend::BatchCounts;
use crate::ir::{AttentionSpec, CNode, ComputeGraph, NodeId, Op, StateId, WeightId};

/// The least that one run reads and multiplies. Counts saturate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Bytes of weights as they are in the file: each once, and of a table that is only looked up the rows of the tokens.
    pub weight_bytes: Bytes,
    /// Bytes of the keys and values that some token sees, each row once.
    pub state_bytes: Bytes,
    /// Multiplications of matrix products, each with its addition.
    pub product_macs: u64,
    /// The same of attention: scores and weighted sums of what each token sees.
    pub attention_macs: u64,
}

impl Demand {
    /// The demand of running `graph` for `counts`, with `n_past` positions in the cache before.
    pub fn of(graph: &ComputeGraph, counts: BatchCounts, n_past: usize) -> Self {
        let mut demand = Self { weight_bytes: weight_bytes(graph, counts), ..Self::default() };
        for node in graph.nodes() {
            let live = node.rows.live(node.shape, counts) as u64;
            match &node.op {
                Op::MatMul => {
                    let weight = graph.node(node.inputs[0]).shape.n_elements().unwrap_or(usize::MAX) as u64;
                    demand.product_macs = demand.product_macs.saturating_add(weight.saturating_mul(live));
                }
                Op::Attention(spec) => {
                    let macs = attention_macs(spec, n_past, live);
                    demand.attention_macs = demand.attention_macs.saturating_add(macs);
                }
                _ => {}
            }
        }
        for (region, rows) in Reads::of(graph, counts, n_past).states {
            let state = graph.nodes().iter().find(|node| node.op == Op::State(region));
            let row = state.and_then(|node| node.dtype.row_bytes(node.shape.cols));
            let bytes = row.and_then(|row| row.checked_mul(rows.len() as u64)).unwrap_or(Bytes::MAX);
            demand.state_bytes = demand.state_bytes.saturating_add(bytes);
        }
        demand
    }

    /// All bytes that are read.
    pub fn bytes(&self) -> Bytes {
        self.weight_bytes.saturating_add(self.state_bytes)
    }

    /// All multiplications.
    pub fn macs(&self) -> u64 {
        self.product_macs.saturating_add(self.attention_macs)
    }
}

impl Sum for Demand {
    fn sum<I: Iterator<Item = Self>>(runs: I) -> Self {
        runs.fold(Self::default(), |a, b| Self {
            weight_bytes: a.weight_bytes.saturating_add(b.weight_bytes),
            state_bytes: a.state_bytes.saturating_add(b.state_bytes),
            product_macs: a.product_macs.saturating_add(b.product_macs),
            attention_macs: a.attention_macs.saturating_add(b.attention_macs),
        })
    }
}

/// Where the bytes of a run are: what a plain read must read to compare with it. Looked-up rows are left out, they are few.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// Weights that are read whole.
    pub weights: BTreeSet<WeightId>,
    /// Rows of regions that attention sees.
    pub states: BTreeMap<StateId, Range<usize>>,
}

impl Reads {
    /// What running `graph` for `counts` reads, with `n_past` positions in the cache before.
    pub fn of(graph: &ComputeGraph, counts: BatchCounts, n_past: usize) -> Self {
        let weights = weight_views(graph).map(|(id, _)| id).collect();
        let mut states: BTreeMap<StateId, Range<usize>> = BTreeMap::new();
        for node in graph.nodes() {
            let Op::Attention(spec) = &node.op else { continue };
            let seen = rows_seen(spec, n_past, node.rows.live(node.shape, counts));
            for &operand in &node.inputs[1..3] {
                let Op::State(id) = graph.node(graph.storage_of(operand)).op else { continue };
                let rows = states.entry(id).or_insert_with(|| seen.clone());
                *rows = rows.start.min(seen.start)..rows.end.max(seen.end);
            }
        }
        Self { weights, states }
    }
}

/// Each weight, or part of one, that a node reads whole.
fn weight_views(graph: &ComputeGraph) -> impl Iterator<Item = (WeightId, NodeId)> {
    let whole = graph.nodes().iter().filter(|node| node.op.has_work()).flat_map(|node| match node.op {
        Op::GetRows => &[],
        _ => &node.inputs[..],
    });
    whole.filter_map(|&operand| Some((weight_of(graph, operand)?, operand)))
}

fn weight_of(graph: &ComputeGraph, id: NodeId) -> Option<WeightId> {
    match graph.node(graph.storage_of(id)).op {
        Op::Weight(weight) => Some(weight),
        _ => None,
    }
}

fn weight_bytes(graph: &ComputeGraph, counts: BatchCounts) -> Bytes {
    let part = |(weight, id)| (weight, graph.offset_in_storage(id), graph.node(id).nbytes());
    let whole: BTreeSet<(WeightId, Bytes, Bytes)> = weight_views(graph).map(part).collect();
    let looked_up = |node: &CNode| {
        let table = *node.inputs.first().filter(|_| node.op == Op::GetRows)?;
        let weight = weight_of(graph, table)?;
        if whole.iter().any(|&(read, ..)| read == weight) {
            // Its rows are among those that are read anyway.
            return None;
        }
        let row = graph.node(table).dtype.row_bytes(node.shape.cols)?;
        row.checked_mul(node.rows.live(node.shape, counts) as u64)
    };
    let rows: Bytes = graph.nodes().iter().filter_map(looked_up).sum();
    whole.iter().map(|&(_, _, bytes)| bytes).sum::<Bytes>().saturating_add(rows)
}

/// The positions that at least one of `tokens` tokens from `n_past` on sees.
fn rows_seen(spec: &AttentionSpec, n_past: usize, tokens: usize) -> Range<usize> {
    if tokens == 0 {
        return 0..0;
    }
    (n_past + 1).saturating_sub(spec.window.unwrap_or(usize::MAX))..n_past + tokens
}

/// A query and a key make a score, and the score weighs a value: twice the elements of a head, for each head.
fn attention_macs(spec: &AttentionSpec, n_past: usize, tokens: u64) -> u64 {
    let window = spec.window.unwrap_or(usize::MAX);
    let seen = (n_past + 1..).take(tokens as usize).map(|n| n.min(window) as u64);
    let elements = 2 * spec.n_heads as u64 * spec.head_dim as u64;
    seen.sum::<u64>().saturating_mul(elements)
}

#[cfg(test)]
mod tests {
    use minfer_tensor::DType;

    use super::*;
    use crate::ir::{GraphBuilder, Rows, Shape, StateDecl, WeightDecl};

    const WIDTH: usize = 64;
    const SPEC: AttentionSpec =
        AttentionSpec { n_heads: 4, n_kv_heads: 2, head_dim: 16, scale: 0.25, window: None, softcap: None };

    /// A table of 100 rows, a norm, keys and values, attention and a head of 100 rows; the head is the table if `tied`.
    fn graph(tokens: usize, tied: bool, window: Option<usize>) -> ComputeGraph {
        let mut b = GraphBuilder::new();
        let weight = |b: &mut GraphBuilder, id, dtype, rows, multiplied| {
            let decl =
                WeightDecl { name: format!("w{id}"), dtype, shape: Shape::new(rows, WIDTH), multiplied };
            b.weight(WeightId::new(id), &decl).unwrap()
        };
        let ids = b.input("ids", DType::I32, Shape::new(tokens, 1), Rows::PerToken(1)).unwrap();
        let positions = b.input("positions", DType::I32, Shape::new(tokens, 1), Rows::PerToken(1)).unwrap();
        let out = b.input("out", DType::I32, Shape::new(1, 1), Rows::PerOutput(1)).unwrap();
        let table = weight(&mut b, 0, DType::Q8_0, 100, tied);
        let x = b.get_rows(table, ids).unwrap();
        let norm = weight(&mut b, 1, DType::F32, 1, false);
        let x = b.rms_norm(x, norm, 1e-5).unwrap();
        let [k, v] = [2, 3].map(|id| {
            let w = weight(&mut b, id, DType::Q4_0, 32, true);
            let rows = b.mat_mul(w, x).unwrap();
            let decl = StateDecl {
                name: format!("s{id}"),
                dtype: DType::F16,
                shape: Shape::new(64, 32),
                layer: 0,
                keys: false,
            };
            let state = b.state(StateId::new(id), &decl).unwrap();
            b.write_rows(state, rows, positions).unwrap()
        });
        let x = b.attention(x, k, v, positions, AttentionSpec { window, ..SPEC }).unwrap();
        let x = b.get_rows(x, out).unwrap();
        let head = if tied { table } else { weight(&mut b, 4, DType::Q8_0, 100, true) };
        let logits = b.mat_mul(head, x).unwrap();
        b.output(logits);
        b.finish().unwrap()
    }

    #[test]
    fn a_decode_step_reads_every_weight_once_and_the_rows_before_it() {
        // 64 elements are 2 blocks: 34 bytes each in Q8_0, 18 in Q4_0.
        let (table, row, norm, product) = (100 * 68, 68, 64 * 4, 32 * 36);
        let counts = BatchCounts { tokens: 1, outputs: 1 };
        let tied = Demand::of(&graph(1, true, None), counts, 9);
        assert_eq!(tied.weight_bytes, Bytes::new(table + norm + 2 * product));
        // 10 positions of 32 elements of 2 bytes, keys and values.
        assert_eq!(tied.state_bytes, Bytes::new(2 * 10 * 64));
        assert_eq!(tied.product_macs, 2 * 32 * 64 + 100 * 64);
        // 4 heads of 16 elements, scores and sums, 10 positions.
        assert_eq!(tied.attention_macs, 2 * 4 * 16 * 10);
        let untied = Demand::of(&graph(1, false, None), counts, 9);
        assert_eq!(untied.weight_bytes, Bytes::new(table + row + norm + 2 * product));
        assert_eq!(Demand { weight_bytes: tied.weight_bytes, ..untied }, tied);
    }

    #[test]
    fn a_batch_counts_the_tokens_that_are_there_and_what_each_sees() {
        // A rung of 8 with 3 tokens, at positions 5, 6 and 7, of which one gives logits.
        let counts = BatchCounts { tokens: 3, outputs: 1 };
        let demand = Demand::of(&graph(8, false, None), counts, 5);
        assert_eq!(demand.product_macs, 3 * 2 * 32 * 64 + 100 * 64);
        assert_eq!(demand.attention_macs, 2 * 4 * 16 * (6 + 7 + 8));
        assert_eq!(demand.state_bytes, Bytes::new(2 * 8 * 64));
        assert_eq!(demand.weight_bytes, Bytes::new(3 * 68 + 64 * 4 + 2 * 32 * 36 + 100 * 68));
        let windowed = Demand::of(&graph(8, false, Some(4)), counts, 5);
        assert_eq!(windowed.attention_macs, 2 * 4 * 16 * (4 + 4 + 4));
        // The first token sees positions 2 to 5, the last 4 to 7.
        assert_eq!(windowed.state_bytes, Bytes::new(2 * 6 * 64));
        let reads = Reads::of(&graph(8, false, Some(4)), counts, 5);
        assert_eq!(reads.states, BTreeMap::from([(StateId::new(2), 2..8), (StateId::new(3), 2..8)]));
        assert_eq!(reads.weights, [1, 2, 3, 4].map(WeightId::new).into());
    }

    #[test]
    fn runs_add_up() {
        let counts = BatchCounts { tokens: 1, outputs: 1 };
        let runs = [0, 1].map(|n_past| Demand::of(&graph(1, true, None), counts, n_past));
        let sum: Demand = runs.into_iter().sum();
        assert_eq!(sum.bytes(), Bytes::new(runs.iter().map(|run| run.bytes().get()).sum()));
        assert_eq!(sum.macs(), runs.iter().map(Demand::macs).sum::<u64>());
    }
}
