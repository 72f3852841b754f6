//! Builds a graph node by node; infers every shape and refuses operands that don't fit.

use minfer_tensor::DType;

use super::error::GraphError;
use super::graph::{ComputeGraph, StateDecl, WeightDecl};
use super::node::{CNode, InputId, NodeId, Rows, Shape, StateId, WeightId};
use super::op::{Activation, AttentionSpec, Op, RopeSpec};
use super::verify::verify;

type Result<T> = std::result::Result<T, GraphError>;

/// Builds one [`ComputeGraph`]. Leaves are shared: asking for a weight or a state twice gives one node.
#[derive(Debug)]
pub struct GraphBuilder {
    graph: ComputeGraph,
    layer: Option<u32>,
}

impl Default for GraphBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl GraphBuilder {
    /// An empty graph.
    pub fn new() -> Self {
        let graph =
            ComputeGraph { nodes: Vec::new(), inputs: Vec::new(), outputs: Vec::new(), keys: Vec::new() };
        Self { graph, layer: None }
    }

    /// The block that the following nodes belong to (rule O4); `None` outside any block.
    pub fn set_layer(&mut self, layer: Option<u32>) {
        self.layer = layer;
    }

    /// Leaf: a value of shape `[n, cols]` that the host fills before each run.
    pub fn input(&mut self, name: &str, dtype: DType, shape: Shape, rows: Rows) -> Result<NodeId> {
        let id = InputId::new(self.graph.inputs.len());
        let node = self.push(Op::Input(id), &[], shape, dtype, rows)?;
        self.graph.inputs.push((name.to_owned(), node));
        Ok(node)
    }

    /// Leaf: a weight.
    pub fn weight(&mut self, id: WeightId, decl: &WeightDecl) -> Result<NodeId> {
        self.leaf(Op::Weight(id), decl.shape, decl.dtype)
    }

    /// Leaf: a persistent region.
    pub fn state(&mut self, id: StateId, decl: &StateDecl) -> Result<NodeId> {
        if decl.keys && !self.graph.keys.contains(&id) {
            self.graph.keys.push(id);
        }
        self.leaf(Op::State(id), decl.shape, decl.dtype)
    }

    /// View of `x` as `[rows, cols]`; as many elements as `x` has.
    pub fn reshape(&mut self, x: NodeId, shape: Shape) -> Result<NodeId> {
        let from = self.node(x);
        let (old, dtype, rows) = (from.shape, from.dtype, from.rows);
        if old.n_elements() != shape.n_elements() {
            return Err(shape_error("reshape", format!("as many elements as {shape}"), old));
        }
        let regroup = |per: usize| {
            let elements = per * old.cols;
            let whole = shape.cols != 0 && elements.is_multiple_of(shape.cols);
            whole.then_some(elements / shape.cols).ok_or_else(|| {
                shape_error("reshape", format!("rows of {} elements within one token", shape.cols), old)
            })
        };
        let rows = match rows {
            Rows::Fixed => Rows::Fixed,
            Rows::PerToken(n) => Rows::PerToken(regroup(n)?),
            Rows::PerOutput(n) => Rows::PerOutput(regroup(n)?),
        };
        self.push(Op::Reshape, &[x], shape, dtype, rows)
    }

    /// View of `n_rows` rows of a fixed value `x` from `first_row` on.
    pub fn slice_rows(&mut self, x: NodeId, first_row: usize, n_rows: usize) -> Result<NodeId> {
        let from = self.node(x);
        let (shape, dtype, rows) = (from.shape, from.dtype, from.rows);
        let inside = first_row.checked_add(n_rows).is_some_and(|end| end <= shape.rows);
        if !inside || rows != Rows::Fixed {
            let expected = format!("at least {first_row} + {n_rows} fixed rows");
            return Err(shape_error("slice_rows", expected, shape));
        }
        self.push(Op::SliceRows { first_row }, &[x], Shape::new(n_rows, shape.cols), dtype, rows)
    }

    /// Rows of `table` named by `ids` (i32 `[n, 1]`), as f32 `[n, cols]`.
    pub fn get_rows(&mut self, table: NodeId, ids: NodeId) -> Result<NodeId> {
        self.expect_dtype("get_rows", ids, DType::I32, "i32")?;
        let (cols, picked) = (self.node(table).shape.cols, self.node(ids));
        let (n, rows) = (picked.shape.rows, picked.rows);
        self.push(Op::GetRows, &[table, ids], Shape::new(n, cols), DType::F32, rows)
    }

    /// `x · wᵀ`: `w` `[n_out, n_in]`, `x` `[n, n_in]` → `[n, n_out]`.
    pub fn mat_mul(&mut self, w: NodeId, x: NodeId) -> Result<NodeId> {
        self.expect_dtype("mat_mul", x, DType::F32, "f32")?;
        let (weight, activation) = (self.node(w).shape, self.node(x));
        if weight.cols != activation.shape.cols {
            return Err(shape_error("mat_mul", format!("{} columns", weight.cols), activation.shape));
        }
        let shape = Shape::new(activation.shape.rows, weight.rows);
        let rows = activation.rows;
        self.push(Op::MatMul, &[w, x], shape, DType::F32, rows)
    }

    /// Every row of `x` over its root mean square, times `w` `[1, cols]`.
    pub fn rms_norm(&mut self, x: NodeId, w: NodeId, eps: f32) -> Result<NodeId> {
        let expected = Shape::new(1, self.node(x).shape.cols);
        if self.node(w).shape != expected {
            return Err(shape_error("rms_norm", expected.to_string(), self.node(w).shape));
        }
        self.expect_dtype("rms_norm", w, DType::F32, "f32")?;
        self.like(Op::RmsNorm { eps }, &[x, w])
    }

    /// `x + y`; `y` has the shape of `x` or is one fixed row (a bias).
    pub fn add(&mut self, x: NodeId, y: NodeId) -> Result<NodeId> {
        let (a, b) = (self.node(x).shape, self.node(y).shape);
        let bias = self.node(y).rows == Rows::Fixed && b == Shape::new(1, a.cols);
        if a != b && !bias {
            return Err(shape_error("add", format!("{a} or [1, {}]", a.cols), b));
        }
        self.expect_dtype("add", y, DType::F32, "f32")?;
        self.like(Op::Add, &[x, y])
    }

    /// `x * factor`.
    pub fn scale(&mut self, x: NodeId, factor: f32) -> Result<NodeId> {
        self.like(Op::Scale { factor }, &[x])
    }

    /// `cap * tanh(x / cap)`.
    pub fn softcap(&mut self, x: NodeId, cap: f32) -> Result<NodeId> {
        self.like(Op::Softcap { cap }, &[x])
    }

    /// `act(gate) * up`, of equal shapes.
    pub fn glu(&mut self, act: Activation, gate: NodeId, up: NodeId) -> Result<NodeId> {
        let (a, b) = (self.node(gate).shape, self.node(up).shape);
        if a != b {
            return Err(shape_error("glu", a.to_string(), b));
        }
        self.expect_dtype("glu", up, DType::F32, "f32")?;
        self.like(Op::Glu(act), &[gate, up])
    }

    /// Rotates every head of `x` `[n, n_heads * head_dim]` by `positions` (i32 `[n, 1]`); `factors` (f32
    /// `[1, n_rot / 2]`) divide the frequencies.
    pub fn rope(
        &mut self,
        x: NodeId,
        positions: NodeId,
        factors: Option<NodeId>,
        spec: RopeSpec,
    ) -> Result<NodeId> {
        let shape = self.node(x).shape;
        let heads_fit = spec.head_dim != 0 && shape.cols.is_multiple_of(spec.head_dim);
        if !heads_fit || !spec.n_rot.is_multiple_of(2) || spec.n_rot > spec.head_dim {
            let what = format!(
                "{} rotary dimensions of heads of {} do not fit rows of {} elements",
                spec.n_rot, spec.head_dim, shape.cols
            );
            return Err(GraphError::Parameter { op: "rope", what });
        }
        self.expect_positions("rope", positions, shape.rows)?;
        let mut inputs = vec![x, positions];
        if let Some(factors) = factors {
            let expected = Shape::new(1, spec.n_rot / 2);
            if self.node(factors).shape != expected {
                return Err(shape_error("rope", expected.to_string(), self.node(factors).shape));
            }
            self.expect_dtype("rope", factors, DType::F32, "f32")?;
            inputs.push(factors);
        }
        self.like(Op::Rope(spec), &inputs)
    }

    /// Writes the rows of `x` to the rows `positions` of `state`; gives the state.
    pub fn write_rows(&mut self, state: NodeId, x: NodeId, positions: NodeId) -> Result<NodeId> {
        let (into, from) = (self.node(state), self.node(x));
        let (shape, dtype) = (into.shape, into.dtype);
        if shape.cols != from.shape.cols {
            return Err(shape_error("write_rows", format!("{} columns", shape.cols), from.shape));
        }
        let n = from.shape.rows;
        self.expect_dtype("write_rows", x, DType::F32, "f32")?;
        self.expect_positions("write_rows", positions, n)?;
        self.push(Op::WriteRows, &[state, x, positions], shape, dtype, Rows::Fixed)
    }

    /// Attention of `q` `[n, n_heads * head_dim]` over the states `k` and `v` `[n_ctx, n_kv_heads * head_dim]`.
    pub fn attention(
        &mut self,
        q: NodeId,
        k: NodeId,
        v: NodeId,
        positions: NodeId,
        spec: AttentionSpec,
    ) -> Result<NodeId> {
        if spec.n_kv_heads == 0 || !spec.n_heads.is_multiple_of(spec.n_kv_heads) || spec.n_heads == 0 {
            let what = format!("{} query heads over {} key heads", spec.n_heads, spec.n_kv_heads);
            return Err(GraphError::Parameter { op: "attention", what });
        }
        let shape = self.node(q).shape;
        let expect = |node: &CNode, cols: usize| {
            let fits = node.shape.cols == cols;
            fits.then_some(()).ok_or_else(|| shape_error("attention", format!("{cols} columns"), node.shape))
        };
        expect(self.node(q), spec.n_heads * spec.head_dim)?;
        expect(self.node(k), spec.n_kv_heads * spec.head_dim)?;
        expect(self.node(v), spec.n_kv_heads * spec.head_dim)?;
        self.expect_positions("attention", positions, shape.rows)?;
        self.like(Op::Attention(spec), &[q, k, v, positions])
    }

    /// Marks a value that is read after a run.
    pub fn output(&mut self, x: NodeId) {
        self.graph.outputs.push(x);
    }

    /// The finished graph, verified.
    pub fn finish(self) -> Result<ComputeGraph> {
        verify(&self.graph)?;
        Ok(self.graph)
    }

    /// A node that was built.
    pub fn node(&self, id: NodeId) -> &CNode {
        self.graph.node(id)
    }

    fn leaf(&mut self, op: Op, shape: Shape, dtype: DType) -> Result<NodeId> {
        match self.graph.nodes.iter().position(|n| n.op == op) {
            Some(index) => Ok(NodeId::new(index)),
            None => self.push(op, &[], shape, dtype, Rows::Fixed),
        }
    }

    /// A node with the extent of its first operand, all f32.
    fn like(&mut self, op: Op, inputs: &[NodeId]) -> Result<NodeId> {
        self.expect_dtype(op.name(), inputs[0], DType::F32, "f32")?;
        let first = self.node(inputs[0]);
        let (shape, rows) = (first.shape, first.rows);
        self.push(op, inputs, shape, DType::F32, rows)
    }

    fn push(&mut self, op: Op, inputs: &[NodeId], shape: Shape, dtype: DType, rows: Rows) -> Result<NodeId> {
        if shape.nbytes(dtype).is_none() {
            return Err(GraphError::Size { op: op.name(), shape, dtype });
        }
        let id = NodeId::new(self.graph.nodes.len());
        let layer = self.layer;
        self.graph.nodes.push(CNode { op, inputs: inputs.to_vec(), shape, dtype, rows, layer });
        Ok(id)
    }

    fn expect_dtype(&self, op: &'static str, id: NodeId, dtype: DType, expected: &'static str) -> Result<()> {
        let found = self.node(id).dtype;
        (found == dtype).then_some(()).ok_or(GraphError::Dtype { op, expected, found })
    }

    fn expect_positions(&self, op: &'static str, id: NodeId, n: usize) -> Result<()> {
        self.expect_dtype(op, id, DType::I32, "i32")?;
        let found = self.node(id).shape;
        (found == Shape::new(n, 1))
            .then_some(())
            .ok_or_else(|| shape_error(op, Shape::new(n, 1).to_string(), found))
    }
}

fn shape_error(op: &'static str, expected: String, found: Shape) -> GraphError {
    GraphError::Shape { op, expected, found }
}
