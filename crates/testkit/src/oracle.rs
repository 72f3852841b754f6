//! What every operation means, said as plainly as possible: f64, one function an operation, no regard for speed.
//!
//! Only rounding that belongs to the meaning is done: weights decode from their format, states store their element
//! type. Every row is computed, padding included; a negative position or id makes a row of zeros, as the operations'
//! docs say.

use std::collections::BTreeMap;

use minfer_graph::{
    Activation, AttentionSpec, CNode, ComputeGraph, InputId, Op, RopeSpec, RopeStyle, Shape, StateId,
    WeightId,
};
use minfer_tensor::{Bytes, DType, decode_row, encode_row};

/// A value: `[rows, cols]`, row-major. Integers are exact.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    /// Extent.
    pub shape: Shape,
    /// Elements.
    pub data: Vec<f64>,
}

/// What exists before a graph runs. A run changes only the states.
#[derive(Clone, Debug, Default)]
pub struct Leaves {
    /// Decoded weights.
    pub weights: BTreeMap<WeightId, Matrix>,
    /// Persistent regions.
    pub states: BTreeMap<StateId, Matrix>,
    /// Inputs by declaration.
    pub inputs: BTreeMap<InputId, Matrix>,
}

impl Matrix {
    /// A matrix of `f(row, col)`.
    pub fn from_fn(shape: Shape, mut f: impl FnMut(usize, usize) -> f64) -> Self {
        let data = (0..shape.rows * shape.cols).map(|i| f(i / shape.cols, i % shape.cols)).collect();
        Self { shape, data }
    }

    /// The value that `bytes` store as `dtype`. Panics if they are not exactly that value's.
    pub fn decode(dtype: DType, shape: Shape, bytes: &[u8]) -> Self {
        assert_eq!(shape.nbytes(dtype), Some(Bytes::from(bytes.len())), "{shape} {dtype}");
        let data = match dtype {
            DType::I32 => bytes.as_chunks().0.iter().map(|&b| f64::from(i32::from_le_bytes(b))).collect(),
            _ => decode_floats(dtype, shape, bytes),
        };
        Self { shape, data }
    }

    /// The row `i`.
    pub fn row(&self, i: usize) -> &[f64] {
        &self.data[i * self.shape.cols..][..self.shape.cols]
    }

    fn map(&self, f: impl Fn(f64) -> f64) -> Self {
        Self { shape: self.shape, data: self.data.iter().map(|&x| f(x)).collect() }
    }

    /// The row that element `i` of a column of positions or ids names; `None` if it is negative.
    fn named_row(&self, i: usize) -> Option<usize> {
        let named = self.data[i];
        (named >= 0.0).then_some(named as usize)
    }
}

fn decode_floats(dtype: DType, shape: Shape, bytes: &[u8]) -> Vec<f64> {
    let mut row = vec![0.0; shape.cols];
    let mut data = Vec::with_capacity(shape.rows * shape.cols);
    for encoded in bytes.chunks_exact(bytes.len() / shape.rows) {
        decode_row(dtype, encoded, &mut row).expect("whole rows of a float type");
        data.extend(row.iter().map(|&x| f64::from(x)));
    }
    data
}

/// Runs `graph` over `leaves`, writes its states, and gives its outputs in their order.
/// Panics if a leaf is missing or an id or position is beyond its table.
pub fn eval(graph: &ComputeGraph, leaves: &mut Leaves) -> Vec<Matrix> {
    let mut values: Vec<Matrix> = Vec::with_capacity(graph.nodes().len());
    for node in graph.nodes() {
        let x: Vec<&Matrix> = node.inputs.iter().map(|id| &values[id.index()]).collect();
        let value = match node.op {
            Op::Weight(id) => leaves.weights[&id].clone(),
            Op::Input(id) => leaves.inputs[&id].clone(),
            Op::State(id) => leaves.states[&id].clone(),
            _ => compute(node, &x),
        };
        if node.op == Op::WriteRows {
            let Op::State(state) = graph.node(graph.storage_of(node.inputs[0])).op else {
                unreachable!("the verifier lets only states be written")
            };
            leaves.states.insert(state, value.clone());
        }
        values.push(value);
    }
    graph.outputs().iter().map(|id| values[id.index()].clone()).collect()
}

fn compute(node: &CNode, x: &[&Matrix]) -> Matrix {
    match &node.op {
        Op::Weight(_) | Op::Input(_) | Op::State(_) => unreachable!("leaves are not computed"),
        Op::Reshape => Matrix { shape: node.shape, data: x[0].data.clone() },
        Op::SliceRows { first_row } => Matrix::from_fn(node.shape, |r, c| x[0].row(first_row + r)[c]),
        Op::GetRows => get_rows(x[0], x[1]),
        Op::MatMul => mat_mul(x[0], x[1]),
        Op::RmsNorm { eps } => rms_norm(x[0], x[1], f64::from(*eps)),
        Op::Add => Matrix::from_fn(x[0].shape, |r, c| x[0].row(r)[c] + x[1].row(r % x[1].shape.rows)[c]),
        Op::Scale { factor } => x[0].map(|v| v * f64::from(*factor)),
        Op::Softcap { cap } => x[0].map(|v| softcap(v, *cap)),
        Op::Glu(act) => {
            let data = x[0].data.iter().zip(&x[1].data).map(|(&g, &u)| activate(*act, g) * u);
            Matrix { shape: x[0].shape, data: data.collect() }
        }
        Op::Rope(spec) => rope(x[0], x[1], x.get(2).copied(), spec),
        Op::WriteRows => write_rows(x[0], x[1], x[2], node.dtype),
        Op::Attention(spec) => attention(x[0], x[1], x[2], x[3], spec),
    }
}

fn get_rows(table: &Matrix, ids: &Matrix) -> Matrix {
    let shape = Shape::new(ids.shape.rows, table.shape.cols);
    Matrix::from_fn(shape, |r, c| ids.named_row(r).map_or(0.0, |id| table.row(id)[c]))
}

fn mat_mul(w: &Matrix, x: &Matrix) -> Matrix {
    let shape = Shape::new(x.shape.rows, w.shape.rows);
    Matrix::from_fn(shape, |r, c| dot(x.row(r), w.row(c)))
}

fn rms_norm(x: &Matrix, w: &Matrix, eps: f64) -> Matrix {
    Matrix::from_fn(x.shape, |r, c| {
        let row = x.row(r);
        let mean_square = dot(row, row) / row.len() as f64;
        row[c] / (mean_square + eps).sqrt() * w.row(0)[c]
    })
}

fn softcap(x: f64, cap: f32) -> f64 {
    let cap = f64::from(cap);
    cap * (x / cap).tanh()
}

fn activate(act: Activation, x: f64) -> f64 {
    match act {
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::GeluTanh => {
            0.5 * x * (1.0 + (std::f64::consts::FRAC_2_PI.sqrt() * (x + 0.044715 * x.powi(3))).tanh())
        }
    }
}

fn rope(x: &Matrix, positions: &Matrix, factors: Option<&Matrix>, spec: &RopeSpec) -> Matrix {
    let half = spec.n_rot / 2;
    Matrix::from_fn(x.shape, |r, c| {
        let (head, i) = (&x.row(r)[c / spec.head_dim * spec.head_dim..], c % spec.head_dim);
        if i >= spec.n_rot {
            return head[i];
        }
        let (pair, first, second) = match spec.style {
            RopeStyle::Adjacent => (i / 2, i / 2 * 2, i / 2 * 2 + 1),
            RopeStyle::Halves => (i % half, i % half, i % half + half),
        };
        let frequency = f64::from(spec.base).powf(-2.0 * pair as f64 / spec.n_rot as f64);
        let factor = factors.map_or(1.0, |f| f.data[pair]);
        let angle = positions.data[r] * f64::from(spec.scale) * frequency / factor;
        let (sin, cos) = angle.sin_cos();
        if i == first {
            head[first] * cos - head[second] * sin
        } else {
            head[first] * sin + head[second] * cos
        }
    })
}

fn write_rows(state: &Matrix, x: &Matrix, positions: &Matrix, dtype: DType) -> Matrix {
    let mut written = state.clone();
    let cols = x.shape.cols;
    for r in 0..x.shape.rows {
        let Some(p) = positions.named_row(r) else { continue };
        written.data[p * cols..][..cols].copy_from_slice(&rounded(x.row(r), dtype));
    }
    written
}

/// A row as it reads back from storage of type `dtype`.
fn rounded(row: &[f64], dtype: DType) -> Vec<f64> {
    let floats: Vec<f32> = row.iter().map(|&x| x as f32).collect();
    let n = dtype.row_bytes(row.len()).and_then(Bytes::to_usize).expect("whole blocks");
    let mut stored = vec![0; n];
    encode_row(dtype, &floats, &mut stored).expect("whole blocks of a float type");
    decode_floats(dtype, Shape::new(1, row.len()), &stored)
}

fn attention(q: &Matrix, k: &Matrix, v: &Matrix, positions: &Matrix, spec: &AttentionSpec) -> Matrix {
    let mut out = Matrix::from_fn(q.shape, |_, _| 0.0);
    for r in 0..q.shape.rows {
        let Some(p) = positions.named_row(r) else { continue };
        let first = spec.window.map_or(0, |w| (p + 1).saturating_sub(w));
        for h in 0..spec.n_heads {
            let head = head_output(&q.row(r)[h * spec.head_dim..], k, v, first..p + 1, h, spec);
            out.data[r * q.shape.cols + h * spec.head_dim..][..spec.head_dim].copy_from_slice(&head);
        }
    }
    out
}

fn head_output(
    q: &[f64],
    k: &Matrix,
    v: &Matrix,
    seen: std::ops::Range<usize>,
    head: usize,
    spec: &AttentionSpec,
) -> Vec<f64> {
    let d = spec.head_dim;
    let offset = head / (spec.n_heads / spec.n_kv_heads) * d;
    let score = |p| {
        let s = dot(&q[..d], &k.row(p)[offset..][..d]) * f64::from(spec.scale);
        spec.softcap.map_or(s, |cap| softcap(s, cap))
    };
    let scores: Vec<f64> = seen.clone().map(score).collect();
    let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
    let total: f64 = weights.iter().sum();
    (0..d).map(|c| seen.clone().zip(&weights).map(|(p, w)| w / total * v.row(p)[offset + c]).sum()).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

#[cfg(test)]
mod tests;
