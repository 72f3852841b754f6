//! Every operation × element types × awkward shapes, as small graphs with seeded data.

use minfer_graph::{
    Activation, AttentionSpec, Backend, BatchCounts, ComputeGraph, DeviceSpec, GraphError, InputId, NodeId,
    Op, RopeSpec, RopeStyle, StateDecl, StateId, WeightDecl, WeightId,
};
use minfer_tensor::DType;

use crate::case_builder::{Built, CaseBuilder};
use crate::oracle::{self, Leaves, Matrix};
use crate::runner::{Layout, Runner, Session, laid_out};
use crate::tolerance::Tolerance;

/// A graph, the data of its leaves, and how exact its result must be.
#[derive(Clone, Debug)]
pub struct OpCase {
    /// What it is about.
    pub name: String,
    /// The graph; its one output is compared, and so are its states.
    pub graph: ComputeGraph,
    /// Weights by [`WeightId`].
    pub weights: Vec<(WeightDecl, Vec<u8>)>,
    /// States by [`StateId`], with their content before the run.
    pub states: Vec<(StateDecl, Vec<u8>)>,
    /// Inputs by [`InputId`].
    pub inputs: Vec<Vec<u8>>,
    /// Rows that hold data.
    pub counts: BatchCounts,
    /// How far from the oracle the result may be.
    pub tolerance: Tolerance,
}

impl OpCase {
    /// Whether a device has kernels for every node.
    pub fn supported_by(&self, spec: &dyn DeviceSpec) -> bool {
        self.graph.nodes().iter().filter(|node| !node.op.is_leaf()).all(|node| {
            let operands: Vec<DType> = node.inputs.iter().map(|&i| self.graph.node(i).dtype).collect();
            spec.supports_op(node, &operands)
        })
    }

    /// What the oracle says: the live rows of the output, and the states.
    pub fn expected(&self) -> (Vec<f64>, Vec<Matrix>) {
        let mut leaves = self.leaves();
        let output = oracle::eval(&self.graph, &mut leaves).remove(0);
        let node = self.graph.node(self.graph.outputs()[0]);
        let live = node.rows.live(node.shape, self.counts);
        (output.data[..live * node.shape.cols].to_vec(), leaves.states.into_values().collect())
    }

    fn leaves(&self) -> Leaves {
        let decode = |(decl, data): &(WeightDecl, Vec<u8>)| Matrix::decode(decl.dtype, decl.shape, data);
        let weights = self.weights.iter().enumerate().map(|(i, w)| (WeightId::new(i), decode(w)));
        let decode = |(decl, data): &(StateDecl, Vec<u8>)| Matrix::decode(decl.dtype, decl.shape, data);
        let states = self.states.iter().enumerate().map(|(i, s)| (StateId::new(i), decode(s)));
        let inputs = self.graph.inputs().iter().zip(&self.inputs).enumerate().map(|(i, ((_, id), data))| {
            let node = self.graph.node(*id);
            (InputId::new(i), Matrix::decode(node.dtype, node.shape, data))
        });
        Leaves { weights: weights.collect(), states: states.collect(), inputs: inputs.collect() }
    }
}

/// Runs a case on a backend and compares output and states with the oracle; the error says what is off.
pub fn run_case(backend: &mut dyn Backend, case: &OpCase) -> Result<(), String> {
    let (output, states) = run_raw(backend, case).map_err(|e| format!("{}: {e}", case.name))?;
    let (expected, expected_states) = case.expected();
    let off = |what: &str, e: &dyn std::fmt::Display| format!("{}: {what}: {e}", case.name);
    case.tolerance.check(&expected, &output).map_err(|e| off("output", &e))?;
    for ((found, expected), (decl, _)) in states.iter().zip(&expected_states).zip(&case.states) {
        let found = Matrix::decode(decl.dtype, decl.shape, found);
        let floats: Vec<f32> = found.data.iter().map(|&x| x as f32).collect();
        state_tolerance(decl.dtype).check(&expected.data, &floats).map_err(|e| off(&decl.name, &e))?;
    }
    Ok(())
}

/// How far keys and values of this type may be off: their rounding is part of the expectation, but not its ties.
fn state_tolerance(dtype: DType) -> Tolerance {
    match dtype {
        DType::Q8_0 => Tolerance::Q8_0_ROWS,
        _ => Tolerance::F16,
    }
}

/// Runs a case on a backend; gives the live rows of the output and the bytes of the states.
pub fn run_raw(
    backend: &mut dyn Backend,
    case: &OpCase,
) -> Result<(Vec<f32>, Vec<Vec<u8>>), minfer_graph::BackendError> {
    let mut session = Session::new(backend);
    for (i, (decl, data)) in case.weights.iter().enumerate() {
        session.register_weight(WeightId::new(i), decl, data.clone())?;
    }
    for (i, (decl, data)) in case.states.iter().enumerate() {
        let id = StateId::new(i);
        let data = laid_out(&case.graph, id, &**session.backend.spec(), data, Layout::OfBackend);
        session.add_state(id, decl, &data)?;
    }
    let mut runner = Runner::new(&mut session, &case.graph)?;
    for (i, data) in case.inputs.iter().enumerate() {
        runner.write_input(&mut session, InputId::new(i), data)?;
    }
    runner.run(&mut session, case.counts)?;
    let output = runner.output(&session, 0, case.counts)?;
    let states = (0..case.states.len()).map(|i| runner.state_rows(&session, StateId::new(i)));
    let states = states.collect::<Result<_, _>>()?;
    runner.release(&mut session);
    session.close();
    Ok((output, states))
}

/// Element types that weights of a matrix product and rows of a table may have.
pub const WEIGHT_TYPES: [DType; 11] = [
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::Q4_0,
    DType::Q4_1,
    DType::Q5_0,
    DType::Q5_1,
    DType::Q8_0,
    DType::Q4K,
    DType::Q5K,
    DType::Q6K,
];

/// Element types that keys and values may have.
pub const STATE_TYPES: [DType; 3] = [DType::F32, DType::F16, DType::Q8_0];

/// The list.
pub fn all_cases() -> Vec<OpCase> {
    let parts =
        [mat_mul_cases(), gather_cases(), element_cases(), rope_cases(), write_cases(), attention_cases()];
    parts.into_iter().flatten().collect()
}

/// One case: `build` makes the node under test.
fn case(
    name: String,
    (rung, live): (usize, usize),
    tolerance: Tolerance,
    build: impl FnOnce(&mut CaseBuilder) -> Built,
) -> OpCase {
    let mut c = CaseBuilder::new(rung, live);
    let node = build(&mut c).unwrap_or_else(|e: GraphError| panic!("{name}: {e}"));
    c.finish(name, node, tolerance)
}

/// A computed copy of an input, so that the next operation may overwrite it.
fn computed(c: &mut CaseBuilder, cols: usize) -> Built {
    let x = c.activations(cols)?;
    c.graph.scale(x, 1.5)
}

/// `(rung, live)`: one token, odd counts, whole and partial tiles of every kernel, padding.
const BATCHES: [(usize, usize); 6] = [(1, 1), (2, 2), (8, 3), (8, 8), (32, 13), (32, 29)];

fn mat_mul_cases() -> Vec<OpCase> {
    let mut cases = Vec::new();
    for dtype in WEIGHT_TYPES {
        let tolerance = match dtype {
            DType::F32 => Tolerance::F32,
            DType::F16 => Tolerance::F16,
            DType::BF16 => Tolerance::BF16,
            _ => Tolerance::INT8_ACTIVATIONS,
        };
        let cols =
            if dtype.block_len() == 1 { [40, 129] } else { [dtype.block_len(), 3 * dtype.block_len()] };
        for (rows, cols) in [(5, cols[0]), (16, cols[1]), (37, cols[1])] {
            for batch in BATCHES {
                let name = format!("mat_mul {dtype} [{rows}, {cols}] x {batch:?}");
                cases.push(case(name, batch, tolerance, |c| {
                    let (w, x) = (c.weight(dtype, rows, cols)?, c.activations(cols)?);
                    c.graph.mat_mul(w, x)
                }));
            }
        }
    }
    cases.push(case("two mat_muls of one operand".into(), (8, 7), Tolerance::INT8_ACTIVATIONS, |c| {
        let (a, b) = (c.weight(DType::Q8_0, 50, 64)?, c.weight(DType::Q4_0, 50, 64)?);
        let x = c.activations(64)?;
        let (a, b) = (c.graph.mat_mul(a, x)?, c.graph.mat_mul(b, x)?);
        c.graph.add(a, b)
    }));
    cases
}

fn gather_cases() -> Vec<OpCase> {
    let mut cases = Vec::new();
    for dtype in WEIGHT_TYPES {
        let cols = 2 * dtype.block_len().max(24);
        for batch in BATCHES {
            let name = format!("get_rows {dtype} of {batch:?}");
            cases.push(case(name, batch, Tolerance::EXACT, |c| {
                let table = c.weight(dtype, 19, cols)?;
                let mut ids: Vec<i32> = (0..batch.1).map(|_| c.rng.below(19) as i32).collect();
                ids[batch.1 / 2] = if batch.1 > 1 { -1 } else { 18 };
                let ids = c.indices(&ids)?;
                c.graph.get_rows(table, ids)
            }));
        }
    }
    cases.push(case("get_rows of activations".into(), (8, 5), Tolerance::F32, |c| {
        let (x, ids) = (computed(c, 48)?, c.indices(&[4, 0, 0, -1, 2])?);
        c.graph.get_rows(x, ids)
    }));
    cases
}

fn element_cases() -> Vec<OpCase> {
    let mut cases = Vec::new();
    for batch in BATCHES {
        let mut push = |name: &str, build: &dyn Fn(&mut CaseBuilder) -> Built| {
            cases.push(case(format!("{name} {batch:?}"), batch, Tolerance::F32, build));
        };
        for cols in [1, 32, 77] {
            push(&format!("rms_norm of {cols}"), &|c| {
                let (w, x) = (c.weight(DType::F32, 1, cols)?, c.activations(cols)?);
                c.graph.rms_norm(x, w, 1e-5)
            });
            push(&format!("add {cols}"), &|c| {
                let (x, y) = (c.activations(cols)?, c.activations(cols)?);
                c.graph.add(x, y)
            });
            push(&format!("add in place {cols}"), &|c| {
                let (x, y) = (computed(c, cols)?, c.activations(cols)?);
                c.graph.add(x, y)
            });
            push(&format!("add to itself {cols}"), &|c| {
                let x = computed(c, cols)?;
                c.graph.add(x, x)
            });
            push(&format!("add bias {cols}"), &|c| {
                let (w, x) = (c.weight(DType::F32, 1, cols)?, computed(c, cols)?);
                c.graph.add(x, w)
            });
            push(&format!("scale {cols}"), &|c| computed(c, cols));
            push(&format!("softcap {cols}"), &|c| {
                let x = computed(c, cols)?;
                let x = c.graph.scale(x, 40.0)?;
                c.graph.softcap(x, 30.0)
            });
            for act in [Activation::Silu, Activation::GeluTanh] {
                push(&format!("glu {act:?} {cols}"), &|c| {
                    let (gate, up) = (c.activations(cols)?, c.activations(cols)?);
                    let gate = c.graph.scale(gate, 4.0)?;
                    c.graph.glu(act, gate, up)
                });
            }
        }
        push("rms_norm of heads", &|c| {
            let (w, x) = (c.weight(DType::F32, 1, 24)?, computed(c, 72)?);
            let rows = c.graph.node(x).shape.rows;
            let heads = c.graph.reshape(x, minfer_graph::Shape::new(rows * 3, 24))?;
            let normed = c.graph.rms_norm(heads, w, 1e-6)?;
            c.graph.reshape(normed, minfer_graph::Shape::new(rows, 72))
        });
    }
    cases.push(case("mat_mul with a slice of a weight".into(), (2, 2), Tolerance::INT8_ACTIVATIONS, |c| {
        let (w, x) = (c.weight(DType::Q8_0, 40, 64)?, c.activations(64)?);
        let part = c.graph.slice_rows(w, 7, 20)?;
        c.graph.mat_mul(part, x)
    }));
    cases
}

fn rope_cases() -> Vec<OpCase> {
    let mut cases = Vec::new();
    for style in [RopeStyle::Adjacent, RopeStyle::Halves] {
        for (head_dim, n_rot) in [(8, 8), (64, 64), (64, 32), (80, 20), (6, 0)] {
            for (batch, first, scale) in [((1, 1), 0, 1.0), ((8, 5), 1000, 1.0), ((32, 32), 17, 0.25)] {
                let spec = RopeSpec { head_dim, n_rot, style, base: 10000.0, scale };
                let name = format!("rope {style:?} {n_rot}/{head_dim} {batch:?} from {first}");
                cases.push(case(name, batch, Tolerance::ROPE, |c| {
                    let (x, p) = (computed(c, 3 * head_dim)?, c.positions(first)?);
                    c.graph.rope(x, p, None, spec)
                }));
            }
        }
        let spec = RopeSpec { head_dim: 32, n_rot: 32, style, base: 500000.0, scale: 1.0 };
        cases.push(case(format!("rope {style:?} with factors"), (8, 6), Tolerance::ROPE, |c| {
            let factors: Vec<f32> = (0..16).map(|i| 1.0 + i as f32 * 0.3).collect();
            let factors = c.weight_of(DType::F32, 1, 16, &factors)?;
            let (x, p) = (c.activations(64)?, c.positions(40)?);
            c.graph.rope(x, p, Some(factors), spec)
        }));
    }
    cases
}

fn write_cases() -> Vec<OpCase> {
    let mut cases = Vec::new();
    for (dtype, keys) in STATE_TYPES.into_iter().flat_map(|dtype| [(dtype, false), (dtype, true)]) {
        // Three threads don't share the columns evenly.
        let cols = if dtype.block_len() == 1 { 50 } else { 160 };
        for (batch, positions) in [((1, 1), vec![9]), ((8, 4), vec![3, -1, 37, 11])] {
            let name = format!("write_rows {dtype} {positions:?}{}", if keys { " of keys" } else { "" });
            // The output is an operand; the written state is compared anyway.
            cases.push(case(name, batch, Tolerance::F32, |c| {
                let state = c.state(dtype, 40, cols, keys)?;
                let (x, p) = (computed(c, cols)?, c.indices(&positions)?);
                c.graph.write_rows(state, x, p)?;
                Ok(x)
            }));
        }
    }
    cases
}

fn attention_cases() -> Vec<OpCase> {
    let base = AttentionSpec {
        n_heads: 4,
        n_kv_heads: 2,
        head_dim: 32,
        scale: 32f32.powf(-0.5),
        window: None,
        softcap: None,
    };
    let specs = [
        ("gqa", base),
        ("mha", AttentionSpec { n_kv_heads: 4, ..base }),
        ("mqa of 9", AttentionSpec { n_heads: 9, n_kv_heads: 1, head_dim: 64, ..base }),
        ("odd head", AttentionSpec { n_heads: 3, n_kv_heads: 3, head_dim: 20, ..base }),
        ("wide head", AttentionSpec { n_heads: 2, n_kv_heads: 1, head_dim: 256, scale: 0.0625, ..base }),
        ("window 7", AttentionSpec { window: Some(7), ..base }),
        ("window 300", AttentionSpec { window: Some(300), ..base }),
        ("softcap", AttentionSpec { softcap: Some(2.0), scale: 1.0, ..base }),
    ];
    let mut cases = Vec::new();
    for dtype in STATE_TYPES {
        let whole_blocks = |spec: &AttentionSpec| spec.head_dim.is_multiple_of(dtype.block_len());
        for (what, spec) in specs.into_iter().filter(|(_, spec)| whole_blocks(spec)) {
            for (batch, first) in [((1, 1), 0), ((1, 1), 700), ((8, 5), 0), ((8, 7), 253), ((32, 32), 511)] {
                let name = format!("attention {what} over {dtype} {batch:?} from {first}");
                cases.push(case(name, batch, state_tolerance(dtype), |c| attention(c, spec, dtype, first)));
            }
        }
    }
    cases
}

/// New keys and values are written, then attended to with what the states hold already.
fn attention(c: &mut CaseBuilder, spec: AttentionSpec, dtype: DType, first: usize) -> Built {
    let (q_cols, kv_cols) = (spec.n_heads * spec.head_dim, spec.n_kv_heads * spec.head_dim);
    let (k_state, v_state) = (c.state(dtype, 800, kv_cols, true)?, c.state(dtype, 800, kv_cols, false)?);
    let (q, p) = (c.activations(q_cols)?, c.positions(first)?);
    let write = |c: &mut CaseBuilder, state: NodeId| {
        let x = c.activations(kv_cols)?;
        c.graph.write_rows(state, x, p)
    };
    let (k, v) = (write(c, k_state)?, write(c, v_state)?);
    c.graph.attention(q, k, v, p, spec)
}

/// The operations that a list of cases tests.
pub fn operations(cases: &[OpCase]) -> std::collections::BTreeSet<&'static str> {
    cases.iter().flat_map(|c| c.graph.nodes()).map(|n: &minfer_graph::CNode| Op::name(&n.op)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_cover_every_operation_and_have_finite_results() {
        let cases = all_cases();
        let names = [
            "add",
            "attention",
            "get_rows",
            "glu",
            "input",
            "mat_mul",
            "reshape",
            "rms_norm",
            "rope",
            "scale",
            "slice_rows",
            "softcap",
            "state",
            "weight",
            "write_rows",
        ];
        assert!(operations(&cases).into_iter().eq(names));
        for case in &cases {
            let (output, states) = case.expected();
            let values = output.iter().chain(states.iter().flat_map(|s| &s.data));
            assert!(values.copied().all(f64::is_finite), "{}", case.name);
        }
    }
}
