//! What the builder refuses, what the verifier finds, how a graph prints.

use minfer_tensor::DType;
use proptest::prelude::*;

use super::*;

const EPS: f32 = 1e-5;

fn weight(shape: Shape, dtype: DType) -> WeightDecl {
    WeightDecl { name: "w".to_owned(), dtype, shape, multiplied: true }
}

fn cache(cols: usize) -> StateDecl {
    StateDecl {
        name: "blk.0.k".to_owned(),
        dtype: DType::F16,
        shape: Shape::new(32, cols),
        layer: 0,
        keys: false,
    }
}

fn attention(n_heads: usize, n_kv_heads: usize) -> AttentionSpec {
    AttentionSpec { n_heads, n_kv_heads, head_dim: 4, scale: 0.5, window: None, softcap: None }
}

fn rope(head_dim: usize, n_rot: usize) -> RopeSpec {
    RopeSpec { head_dim, n_rot, style: RopeStyle::Halves, base: 1e4, scale: 1.0 }
}

/// A builder with one leaf of each kind: `x` f32 `[2, 8]`, `positions` i32 `[2, 1]`, `w` f32 `[16, 8]`, states of 8 columns.
struct Leaves {
    b: GraphBuilder,
    x: NodeId,
    positions: NodeId,
    w: NodeId,
    k: NodeId,
    v: NodeId,
}

fn leaves() -> Leaves {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, Shape::new(2, 8), Rows::PerToken(1)).unwrap();
    let positions = b.input("positions", DType::I32, Shape::new(2, 1), Rows::PerToken(1)).unwrap();
    let w = b.weight(WeightId::new(0), &weight(Shape::new(16, 8), DType::F32)).unwrap();
    let k = b.state(StateId::new(0), &cache(8)).unwrap();
    let v = b.state(StateId::new(1), &cache(8)).unwrap();
    Leaves { b, x, positions, w, k, v }
}

/// A small transformer block, written and read in the right order.
fn block() -> ComputeGraph {
    let Leaves { mut b, x, positions, w, k, v } = leaves();
    b.set_layer(Some(0));
    let q = b.rope(x, positions, None, rope(4, 4)).unwrap();
    let k = b.write_rows(k, q, positions).unwrap();
    let v = b.write_rows(v, x, positions).unwrap();
    let mixed = b.attention(q, k, v, positions, attention(2, 2)).unwrap();
    let sum = b.add(x, mixed).unwrap();
    b.set_layer(None);
    let logits = b.mat_mul(w, sum).unwrap();
    b.output(logits);
    b.finish().unwrap()
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, GraphError>, message: &str) {
    assert_eq!(result.unwrap_err().to_string(), message);
}

#[test]
fn leaves_are_shared() {
    let Leaves { mut b, w, k, .. } = leaves();
    assert_eq!(b.weight(WeightId::new(0), &weight(Shape::new(16, 8), DType::F32)), Ok(w));
    assert_eq!(b.state(StateId::new(0), &cache(8)), Ok(k));
    assert_ne!(b.weight(WeightId::new(1), &weight(Shape::new(16, 8), DType::F32)), Ok(w));
}

#[test]
fn the_builder_refuses_operands_that_do_not_fit() {
    let Leaves { mut b, x, positions, w, k, .. } = leaves();
    let norm = b.weight(WeightId::new(2), &weight(Shape::new(1, 4), DType::F32)).unwrap();
    let half = b.weight(WeightId::new(3), &weight(Shape::new(1, 8), DType::F16)).unwrap();
    let wide = b.mat_mul(w, x).unwrap();
    refused(b.mat_mul(w, wide), "mat_mul: expected an operand of 8 columns, found [2, 16]");
    refused(b.mat_mul(w, positions), "mat_mul: expected f32 elements, found I32");
    refused(b.rms_norm(x, norm, EPS), "rms_norm: expected an operand of [1, 8], found [1, 4]");
    refused(b.rms_norm(x, half, EPS), "rms_norm: expected f32 elements, found F16");
    refused(b.add(x, wide), "add: expected an operand of [2, 8] or [1, 8], found [2, 16]");
    refused(b.add(x, half), "add: expected f32 elements, found F16");
    refused(b.glu(Activation::Silu, x, wide), "glu: expected an operand of [2, 8], found [2, 16]");
    refused(b.scale(positions, 2.0), "scale: expected f32 elements, found I32");
    refused(b.softcap(half, 2.0), "softcap: expected f32 elements, found F16");
    refused(b.get_rows(w, x), "get_rows: expected i32 elements, found F32");
    refused(b.write_rows(k, wide, positions), "write_rows: expected an operand of 8 columns, found [2, 16]");
    refused(
        b.write_rows(k, positions, positions),
        "write_rows: expected an operand of 8 columns, found [2, 1]",
    );
    refused(b.write_rows(k, x, x), "write_rows: expected i32 elements, found F32");
}

#[test]
fn the_builder_refuses_views_of_what_is_not_there() {
    let Leaves { mut b, x, w, .. } = leaves();
    refused(
        b.reshape(x, Shape::new(3, 8)),
        "reshape: expected an operand of as many elements as [3, 8], found [2, 8]",
    );
    let across = "reshape: expected an operand of rows of 16 elements within one token, found [2, 8]";
    refused(b.reshape(x, Shape::new(1, 16)), across);
    refused(
        b.slice_rows(w, 15, 2),
        "slice_rows: expected an operand of at least 15 + 2 fixed rows, found [16, 8]",
    );
    refused(
        b.slice_rows(x, 0, 1),
        "slice_rows: expected an operand of at least 0 + 1 fixed rows, found [2, 8]",
    );
    let beyond = b.slice_rows(w, usize::MAX, 2);
    assert!(matches!(beyond, Err(GraphError::Shape { .. })));
    let sliced = b.slice_rows(w, 15, 1).unwrap();
    assert_eq!(b.node(sliced).shape, Shape::new(1, 8));
    let grouped = b.reshape(x, Shape::new(8, 2)).unwrap();
    assert_eq!(b.node(grouped).rows, Rows::PerToken(4));
}

#[test]
fn the_builder_refuses_heads_that_do_not_divide() {
    let Leaves { mut b, x, positions, k, v, .. } = leaves();
    let few = b.input("few", DType::I32, Shape::new(1, 1), Rows::PerToken(1)).unwrap();
    let odd = "rope: 3 rotary dimensions of heads of 4 do not fit rows of 8 elements";
    refused(b.rope(x, positions, None, rope(4, 3)), odd);
    for (head_dim, n_rot) in [(3, 2), (0, 0), (4, 6)] {
        assert!(matches!(
            b.rope(x, positions, None, rope(head_dim, n_rot)),
            Err(GraphError::Parameter { .. })
        ));
    }
    refused(b.rope(x, few, None, rope(4, 4)), "rope: expected an operand of [2, 1], found [1, 1]");
    refused(b.rope(x, positions, Some(x), rope(4, 4)), "rope: expected an operand of [1, 2], found [2, 8]");
    refused(b.attention(x, k, v, positions, attention(2, 0)), "attention: 2 query heads over 0 key heads");
    refused(b.attention(x, k, v, positions, attention(3, 2)), "attention: 3 query heads over 2 key heads");
    let narrow = b.attention(x, k, v, positions, attention(2, 1));
    refused(narrow, "attention: expected an operand of 4 columns, found [32, 8]");
    refused(
        b.attention(x, k, v, few, attention(2, 2)),
        "attention: expected an operand of [2, 1], found [1, 1]",
    );
}

#[test]
fn the_builder_refuses_values_without_a_size() {
    let mut b = GraphBuilder::new();
    let huge = b.input("x", DType::F32, Shape::new(usize::MAX, 2), Rows::Fixed);
    assert!(matches!(huge, Err(GraphError::Size { op: "input", .. })));
    let partial = b.weight(WeightId::new(0), &weight(Shape::new(4, 33), DType::Q8_0));
    refused(partial, "weight: a value of [4, 33] Q8_0 elements has no size in bytes");
}

#[test]
fn a_block_holds_together() {
    let graph = block();
    assert_eq!(verify(&graph), Ok(()));
    let sum = graph.nodes().iter().find(|node| node.op == Op::Add).unwrap();
    assert_eq!((sum.layer, sum.rows), (Some(0), Rows::PerToken(1)));
    assert_eq!(graph.input("positions"), Some(InputId::new(1)));
    assert_eq!(graph.input("nothing"), None);
}

/// Breaks a sound graph and looks for the invariant that says so.
#[track_caller]
fn broken(what: &str, damage: impl FnOnce(&mut ComputeGraph)) {
    let mut graph = block();
    damage(&mut graph);
    let error = verify(&graph).unwrap_err().to_string();
    assert!(error.contains(what), "found: {error}");
}

fn nth(graph: &ComputeGraph, name: &str) -> usize {
    graph.nodes.iter().position(|node| node.op.name() == name).unwrap()
}

#[test]
fn the_verifier_names_the_invariant_that_is_broken() {
    broken("does not come before it", |g| {
        let (add, last) = (nth(g, "add"), g.nodes.len() - 1);
        g.nodes[add].inputs[1] = NodeId::new(last);
    });
    broken("takes 2..=2 operands, has 1", |g| {
        let add = nth(g, "add");
        g.nodes[add].inputs.pop();
    });
    broken("has no size", |g| {
        let add = nth(g, "add");
        g.nodes[add].shape = Shape::new(usize::MAX, usize::MAX);
    });
    broken("are not whole groups", |g| {
        let add = nth(g, "add");
        g.nodes[add].rows = Rows::PerToken(3);
    });
    broken("are not whole groups", |g| {
        let add = nth(g, "add");
        g.nodes[add].rows = Rows::PerOutput(0);
    });
    broken("an output must be computed", |g| g.outputs.push(NodeId::new(0)));
    broken("an output must be computed", |g| g.outputs.push(NodeId::new(1000)));
    broken("is no input node", |g| g.inputs[0].1 = NodeId::new(2));
    broken("is no input node", |g| g.inputs[0].1 = NodeId::new(1000));
}

#[test]
fn the_verifier_checks_views() {
    broken("a view [32, 9]", |g| {
        let write = nth(g, "write_rows");
        g.nodes[write].shape.cols = 9;
    });
    broken("a F32 view of F16", |g| {
        let write = nth(g, "write_rows");
        g.nodes[write].dtype = DType::F32;
    });
    broken("a view [2, 8] of [16, 8]", |g| {
        let add = nth(g, "add");
        g.nodes[add] = CNode { op: Op::Reshape, inputs: vec![NodeId::new(2)], ..g.nodes[add].clone() };
    });
    broken("a view [2, 8] of [16, 8]", |g| {
        let add = nth(g, "add");
        let op = Op::SliceRows { first_row: usize::MAX };
        g.nodes[add] = CNode { op, inputs: vec![NodeId::new(2)], ..g.nodes[add].clone() };
    });
}

/// A value that shows a weight or an input is there before the run; nothing computes it.
#[test]
fn an_output_is_no_view_of_a_leaf() {
    let Leaves { mut b, w, .. } = leaves();
    let view = b.reshape(w, Shape::new(8, 16)).unwrap();
    b.output(view);
    refused(b.finish(), "%5: an output must be computed");
}

/// How keys lie is the backend's own business.
#[test]
fn keys_are_written_and_attended_to_and_nothing_else() {
    let keys = StateDecl { keys: true, ..cache(8) };
    let Leaves { mut b, x, positions, v, .. } = leaves();
    let k = b.state(StateId::new(2), &keys).unwrap();
    let written = b.write_rows(k, x, positions).unwrap();
    let out = b.attention(x, written, v, positions, attention(2, 2)).unwrap();
    b.output(out);
    let graph = b.finish().unwrap();
    assert!(graph.holds_keys(written) && !graph.holds_keys(v));

    let Leaves { mut b, x, positions, .. } = leaves();
    let k = b.state(StateId::new(2), &keys).unwrap();
    let out = b.attention(x, k, k, positions, attention(2, 2)).unwrap();
    b.output(out);
    refused(b.finish(), "%6: attention can't read keys");
}

#[test]
fn a_state_is_read_through_its_latest_write() {
    let Leaves { mut b, x, positions, k, v, .. } = leaves();
    let early = b.attention(x, k, v, positions, attention(2, 2)).unwrap();
    let written = b.write_rows(k, early, positions).unwrap();
    let late = b.attention(x, written, v, positions, attention(2, 2)).unwrap();
    b.output(late);
    b.finish().unwrap();

    let Leaves { mut b, x, positions, k, v, .. } = leaves();
    b.write_rows(k, x, positions).unwrap();
    let stale = b.attention(x, k, v, positions, attention(2, 2)).unwrap();
    b.output(stale);
    refused(b.finish(), "%6: reads %3 past a write to it");
}

#[test]
fn a_graph_prints_one_node_a_line() {
    let expected = "\
%0 = input in0() : F32 [2, 8] per token
%1 = input in1() : I32 [2, 1] per token
%2 = weight w0() : F32 [16, 8]
%3 = state s0() : F16 [32, 8]
%4 = state s1() : F16 [32, 8]
%5 = rope(%0, %1) : F32 [2, 8] per token block 0
%6 = write_rows(%3, %5, %1) : F16 [32, 8] block 0
%7 = write_rows(%4, %0, %1) : F16 [32, 8] block 0
%8 = attention(%5, %6, %7, %1) : F32 [2, 8] per token block 0
%9 = add(%0, %8) : F32 [2, 8] per token block 0
%10 = mat_mul(%2, %9) : F32 [2, 16] per token -> output
";
    assert_eq!(block().to_string(), expected);
}

#[test]
fn a_graph_draws_itself() {
    let Leaves { mut b, x, .. } = leaves();
    b.set_layer(Some(3));
    let y = b.scale(x, 2.0).unwrap();
    b.output(y);
    let dot = b.finish().unwrap().to_dot();
    assert!(dot.starts_with("digraph {\n") && dot.ends_with("}\n"));
    for line in [
        "  n0 [label=\"%0 input in0\\nF32 [2, 8]\", style=dashed];",
        "  subgraph cluster_3 { label=\"block 3\"; n5 [label=\"%5 scale\\nF32 [2, 8]\"]; }",
        "  n0 -> n5;",
    ] {
        assert!(dot.lines().any(|l| l == line), "{line} is not in {dot}");
    }
}

#[test]
fn an_offset_adds_up_through_views() {
    let Leaves { mut b, w, .. } = leaves();
    let tail = b.slice_rows(w, 4, 12).unwrap();
    let folded = b.reshape(tail, Shape::new(24, 4)).unwrap();
    let last = b.slice_rows(folded, 3, 1).unwrap();
    let graph = b.finish().unwrap();
    assert_eq!(graph.storage_of(last), w);
    assert_eq!(graph.offset_in_storage(last).get(), (4 * 8 + 3 * 4) * 4);
}

proptest! {
    #[test]
    fn live_rows_never_exceed_the_shape(rows in 0..100usize, per in 1..8usize, tokens in 0..200usize, outputs in 0..200usize) {
        let counts = crate::BatchCounts { tokens, outputs };
        let shape = Shape::new(rows * per, 4);
        prop_assert_eq!(Rows::Fixed.live(shape, counts), rows * per);
        prop_assert_eq!(Rows::PerToken(per).live(shape, counts), per * tokens.min(rows));
        prop_assert_eq!(Rows::PerOutput(per).live(shape, counts), per * outputs.min(rows));
    }
}
