//! What the tests of this crate share: one open device for a test binary, and small graphs placed by hand.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part")]
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test stops at the first surprise, and says so"
)]

use std::ops::Range;
use std::sync::Arc;

use minfer_backend_wgpu::{Adapter, OpenOptions, WgpuBackend, adapters};
use minfer_graph::{
    Backend, BackendError, BackendId, Binding, BufId, BufRef, ComputeGraph, GraphBuilder, NodeId, Op, Rows,
    Segment, SegmentId, Shape, WeightBytes, WeightDecl, WeightSource,
};
use minfer_tensor::{Bytes, DType};

/// The best adapter. Without one, `None` and a line that says so, or a failure where one is required.
pub fn adapter() -> Option<Adapter> {
    let found = adapters().into_iter().next();
    if found.is_none() {
        let required = std::env::var("MINFER_TEST_WGPU").is_ok_and(|value| value == "required");
        assert!(!required, "MINFER_TEST_WGPU=required and no graphics adapter");
        eprintln!("no graphics adapter: nothing is tested");
    }
    found
}

/// An open device that is ready for buffers.
pub fn open(options: OpenOptions) -> Option<WgpuBackend> {
    let mut backend = adapter()?.open(options).unwrap();
    backend.commit_fixed().unwrap();
    Some(backend)
}

/// Bytes of a weight, owned by the test.
pub struct Source(pub Vec<u8>, pub bool);

impl WeightSource for Source {
    fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.0[range]
    }
    fn is_mapped(&self) -> bool {
        self.1
    }
}

pub fn weight_bytes(data: Vec<u8>) -> WeightBytes {
    let len = data.len();
    WeightBytes::new(Arc::new(Source(data, false)), 0..len)
}

pub fn decl(dtype: DType, rows: usize, cols: usize) -> WeightDecl {
    WeightDecl { name: "w".into(), dtype, shape: Shape::new(rows, cols), multiplied: true }
}

pub fn window(id: BufId, offset: u64, len: u64) -> BufRef {
    BufRef { backend: BackendId::new(0), id, offset: Bytes::new(offset), len: Bytes::new(len) }
}

pub fn read(backend: &WgpuBackend, window: BufRef) -> Vec<u8> {
    let mut data = vec![0; window.len.to_usize().unwrap()];
    backend.read_host_window(window, &mut data).unwrap();
    data
}

pub fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

pub fn buffers(places: &[BufRef]) -> Vec<Option<Binding>> {
    places.iter().map(|&place| Some(Binding::Buffer(place))).collect()
}

/// Prepares all computed nodes of a graph.
pub fn prepare(
    backend: &mut WgpuBackend,
    graph: &ComputeGraph,
    bindings: &[Option<Binding>],
) -> Result<SegmentId, BackendError> {
    let computed = |id: &NodeId| !graph.node(*id).op.is_leaf() && graph.node(*id).op != Op::Reshape;
    let nodes: Vec<NodeId> = graph.ids().filter(computed).collect();
    backend.prepare(Segment { graph, nodes: &nodes, bindings, scratch: None })
}

/// `x * 2` of `[8, 4]`.
pub fn doubling() -> ComputeGraph {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, Shape::new(8, 4), Rows::PerToken(1)).unwrap();
    let y = b.scale(x, 2.0).unwrap();
    b.output(y);
    b.finish().unwrap()
}
