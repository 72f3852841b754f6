//! Builds an [`OpCase`]: a graph whose leaves come with seeded data.

use minfer_graph::{
    BatchCounts, GraphBuilder, GraphError, InputId, NodeId, Rows, Shape, StateDecl, StateId, WeightDecl,
    WeightId,
};
use minfer_tensor::{Bytes, DType, encode_row};

use crate::cases::OpCase;
use crate::rng::Rng;
use crate::tolerance::Tolerance;

/// A graph in the making and the data of its leaves.
pub(crate) struct CaseBuilder {
    pub(crate) graph: GraphBuilder,
    pub(crate) rng: Rng,
    /// Rows at the full rung.
    rung: usize,
    /// Rows that hold data.
    live: usize,
    weights: Vec<(WeightDecl, Vec<u8>)>,
    states: Vec<(StateDecl, Vec<u8>)>,
    inputs: Vec<Vec<u8>>,
}

pub(crate) type Built = Result<NodeId, GraphError>;

impl CaseBuilder {
    /// A graph for `rung` tokens, `live` of which are there.
    pub(crate) fn new(rung: usize, live: usize) -> Self {
        let graph = GraphBuilder::new();
        let rng = Rng::new((rung * 1000 + live) as u64);
        Self { graph, rng, rung, live, weights: Vec::new(), states: Vec::new(), inputs: Vec::new() }
    }

    /// A random weight `[rows, cols]` of variance `1 / cols`.
    pub(crate) fn weight(&mut self, dtype: DType, rows: usize, cols: usize) -> Built {
        let values = self.rng.normals(rows * cols, (cols as f32).powf(-0.5));
        self.weight_of(dtype, rows, cols, &values)
    }

    /// A weight of given values.
    pub(crate) fn weight_of(&mut self, dtype: DType, rows: usize, cols: usize, values: &[f32]) -> Built {
        let name = format!("w{}", self.weights.len());
        let decl = WeightDecl { name, dtype, shape: Shape::new(rows, cols), multiplied: true };
        let id = WeightId::new(self.weights.len());
        let data = encode(dtype, decl.shape, values);
        self.weights.push((decl.clone(), data));
        self.graph.weight(id, &decl)
    }

    /// A state filled with random rows, which may be keys.
    pub(crate) fn state(&mut self, dtype: DType, n_ctx: usize, cols: usize, keys: bool) -> Built {
        let name = format!("s{}", self.states.len());
        let decl = StateDecl { name, dtype, shape: Shape::new(n_ctx, cols), layer: 0, keys };
        let id = StateId::new(self.states.len());
        let data = encode(dtype, decl.shape, &self.rng.normals(n_ctx * cols, 1.0));
        self.states.push((decl.clone(), data));
        self.graph.state(id, &decl)
    }

    /// A random f32 input with one row a token; its padding rows are NaN, which nothing may let through.
    pub(crate) fn activations(&mut self, cols: usize) -> Built {
        let mut values = self.rng.normals(self.live * cols, 1.0);
        values.resize(self.rung * cols, f32::NAN);
        self.inputs.push(encode(DType::F32, Shape::new(self.rung, cols), &values));
        self.graph.input(&self.next_name(), DType::F32, Shape::new(self.rung, cols), Rows::PerToken(1))
    }

    /// Positions `first..` of the live tokens, -1 in the padding.
    pub(crate) fn positions(&mut self, first: usize) -> Built {
        let column: Vec<i32> = (first..first + self.live).map(|p| p as i32).collect();
        self.indices(&column)
    }

    /// A column of indices, one a live token, -1 in the padding.
    pub(crate) fn indices(&mut self, live: &[i32]) -> Built {
        let padding = std::iter::repeat_n(-1, self.rung - self.live);
        self.inputs.push(live.iter().copied().chain(padding).flat_map(i32::to_le_bytes).collect());
        self.graph.input(&self.next_name(), DType::I32, Shape::new(self.rung, 1), Rows::PerToken(1))
    }

    /// The case of the built graph with the output `x`.
    pub(crate) fn finish(mut self, name: String, x: NodeId, tolerance: Tolerance) -> OpCase {
        self.graph.output(x);
        let graph = self.graph.finish().expect("a case is a valid graph");
        let counts = BatchCounts { tokens: self.live, outputs: self.live };
        let Self { weights, states, inputs, .. } = self;
        OpCase { name, graph, weights, states, inputs, counts, tolerance }
    }

    fn next_name(&self) -> String {
        format!("{}", InputId::new(self.inputs.len() - 1))
    }
}

/// `values` row by row in the format of `dtype`.
pub(crate) fn encode(dtype: DType, shape: Shape, values: &[f32]) -> Vec<u8> {
    let row_bytes = dtype.row_bytes(shape.cols).and_then(Bytes::to_usize).expect("whole blocks");
    let mut data = vec![0; row_bytes * shape.rows];
    for (row, out) in values.chunks_exact(shape.cols).zip(data.chunks_exact_mut(row_bytes)) {
        encode_row(dtype, row, out).expect("whole blocks of a float type");
    }
    data
}
