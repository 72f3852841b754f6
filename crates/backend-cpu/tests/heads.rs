//! Attention of one token makes its heads itself, but not where another value has taken the place of their rows by then.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use minfer_backend_cpu::{CpuBackend, CpuSpec};
use minfer_graph::{
    AttentionSpec, Backend, BackendId, BatchCounts, Binding, BufId, BufKind, BufRef, CancelFlag,
    ComputeGraph, GraphBuilder, NodeId, Op, RopeSpec, RopeStyle, Rows, Segment, Shape, StateDecl, StateId,
};
use minfer_tensor::{Bytes, DType};

const HEAD: usize = 16;
const HEAD_BYTES: Bytes = Bytes::new(4 * HEAD as u64);
const HEADS: usize = 3;
const COLS: usize = HEADS * HEAD;
/// More than one chunk of keys.
const TOKENS: usize = 300;

/// One token: its query, key and value are multiples of `x`.
fn graph() -> ComputeGraph {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, Shape::new(1, COLS), Rows::PerToken(1)).unwrap();
    let positions = b.input("positions", DType::I32, Shape::new(1, 1), Rows::PerToken(1)).unwrap();
    let [q, k, v] = [0.7, -0.4, 2.0].map(|factor| b.scale(x, factor).unwrap());
    let turn = RopeSpec { head_dim: HEAD, n_rot: HEAD, style: RopeStyle::Halves, base: 100.0, scale: 1.0 };
    let [q, k] = [q, k].map(|x| b.rope(x, positions, None, turn).unwrap());
    let [k, v] = [(0, k), (1, v)].map(|(i, x)| {
        let shape = Shape::new(TOKENS, COLS);
        let decl = StateDecl { name: format!("{i}"), dtype: DType::F16, shape, layer: 0, keys: i == 0 };
        let state = b.state(StateId::new(i), &decl).unwrap();
        b.write_rows(state, x, positions).unwrap()
    });
    let spec = AttentionSpec {
        n_heads: HEADS,
        n_kv_heads: HEADS,
        head_dim: HEAD,
        scale: 1.0,
        window: None,
        softcap: None,
    };
    let out = b.attention(q, k, v, positions, spec).unwrap();
    b.output(out);
    b.finish().unwrap()
}

fn place(id: BufId, len: Bytes) -> BufRef {
    BufRef { backend: BackendId::new(0), id, offset: Bytes::ZERO, len }
}

/// Attends to all tokens, each value in a place of its own, but the result from the second head of `taken` on, if there is
/// one: its first head overwrites what the second one needs. Gives the bits of all results.
fn run(threads: usize, taken: Option<fn(&ComputeGraph) -> NodeId>) -> Vec<Vec<u8>> {
    let graph = graph();
    let mut backend = CpuBackend::new(CpuSpec::detect(threads)).unwrap();
    let attention = graph.outputs()[0];
    let mut bindings: Vec<Option<Binding>> = vec![None; graph.nodes().len()];
    for id in graph.ids() {
        let node = graph.node(id);
        // A rotation works in place, a write gives its state.
        let same = match node.op {
            Op::Rope(_) => Some(node.inputs[0]),
            Op::WriteRows => Some(graph.storage_of(id)),
            Op::Attention(_) => taken.map(|taken| taken(&graph)),
            _ => None,
        };
        bindings[id.index()] = match same.and_then(|same| bindings[same.index()]) {
            Some(Binding::Buffer(row)) if id == attention => {
                Some(Binding::Buffer(BufRef { offset: HEAD_BYTES, ..row }))
            }
            Some(same) => Some(same),
            None => {
                let len = node.nbytes().saturating_add(HEAD_BYTES);
                let buffer = backend.alloc_buffer(BufKind::Pool, len).unwrap();
                Some(Binding::Buffer(place(buffer, node.nbytes())))
            }
        };
    }
    let nodes: Vec<NodeId> = graph.ids().filter(|&id| graph.node(id).op.has_work()).collect();
    let needed = backend.spec().scratch_bytes(&graph, &nodes);
    let scratch = place(backend.alloc_buffer(BufKind::Scratch, needed).unwrap(), needed);
    let segment = Segment { graph: &graph, nodes: &nodes, bindings: &bindings, scratch: Some(scratch) };
    let segment = backend.prepare(segment).unwrap();
    let at = |id: NodeId| match bindings[id.index()] {
        Some(Binding::Buffer(place)) => place,
        _ => unreachable!("all values lie in buffers"),
    };
    let inputs = [graph.inputs()[0].1, graph.inputs()[1].1].map(at);
    let counts = BatchCounts { tokens: 1, outputs: 1 };
    let step = |position: usize| {
        let x = (0..COLS).flat_map(|i| ((i * 31 + position * 17) as f32).sin().to_le_bytes());
        backend.write_host_window(inputs[0], &x.collect::<Vec<u8>>()).unwrap();
        backend.write_host_window(inputs[1], &(position as i32).to_le_bytes()).unwrap();
        backend.execute(segment, counts, &CancelFlag::new()).unwrap();
        let mut out = vec![0; COLS * size_of::<f32>()];
        backend.read_host_window(at(attention), &mut out).unwrap();
        out
    };
    (0..TOKENS).map(step).collect()
}

#[test]
fn a_row_whose_place_is_taken_is_used_before() {
    let expected = run(1, None);
    assert!(expected.windows(2).all(|pair| pair[0] != pair[1]));
    let key: fn(&ComputeGraph) -> NodeId = |graph| {
        let write = graph.node(graph.outputs()[0]).inputs[1];
        graph.node(write).inputs[1]
    };
    let value: fn(&ComputeGraph) -> NodeId = |graph| {
        let write = graph.node(graph.outputs()[0]).inputs[2];
        graph.node(write).inputs[1]
    };
    for threads in [1, 2, 3] {
        for taken in [None, Some(key), Some(value)] {
            assert!(run(threads, taken) == expected, "{threads} threads, taken {}", taken.is_some());
        }
    }
}
