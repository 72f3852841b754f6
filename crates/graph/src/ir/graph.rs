//! The graph: nodes in execution order and what they refer to.

use minfer_tensor::{Bytes, DType};

use super::node::{CNode, InputId, NodeId, Shape, StateId};
use super::op::Op;

/// A weight of the model: what a graph needs to know of it.
#[derive(Clone, Debug, PartialEq)]
pub struct WeightDecl {
    /// Name in the file, as `blk.0.attn_q.weight`.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// `[n_out, n_in]`.
    pub shape: Shape,
    /// Whether a matrix product reads it; a table whose rows are only looked up isn't worth repacking.
    pub multiplied: bool,
}

/// A persistent region: the keys or the values of one block.
#[derive(Clone, Debug, PartialEq)]
pub struct StateDecl {
    /// Name in reports, as `blk.0.k`.
    pub name: String,
    /// Element type of a stored row.
    pub dtype: DType,
    /// `[n_ctx, n_kv_heads * head_dim]`.
    pub shape: Shape,
    /// The block that the region belongs to.
    pub layer: u32,
    /// Whether it is nothing but keys: rows are written to it, and only attention reads them. A backend may lay such a state
    /// out as it likes, the same in all graphs.
    pub keys: bool,
}

impl StateDecl {
    /// Bytes of the region, or `None` if the product overflows or a row isn't whole blocks.
    pub fn nbytes(&self) -> Option<Bytes> {
        self.shape.nbytes(self.dtype)
    }
}

/// A computation as data: nodes in execution order. Built by [`GraphBuilder`](super::GraphBuilder), then never changed.
#[derive(Clone, Debug, PartialEq)]
pub struct ComputeGraph {
    pub(super) nodes: Vec<CNode>,
    pub(super) inputs: Vec<(String, NodeId)>,
    pub(super) outputs: Vec<NodeId>,
    /// States that are declared to be keys.
    pub(super) keys: Vec<StateId>,
}

impl ComputeGraph {
    /// All nodes; the operands of a node come before it.
    pub fn nodes(&self) -> &[CNode] {
        &self.nodes
    }

    /// The node of a handle. Panics if it is of another graph.
    pub fn node(&self, id: NodeId) -> &CNode {
        &self.nodes[id.index()]
    }

    /// All handles in execution order.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = NodeId> + use<> {
        (0..self.nodes.len()).map(NodeId::new)
    }

    /// Inputs by declaration: name and node.
    pub fn inputs(&self) -> &[(String, NodeId)] {
        &self.inputs
    }

    /// The input of a name.
    pub fn input(&self, name: &str) -> Option<InputId> {
        self.inputs.iter().position(|(n, _)| n == name).map(InputId::new)
    }

    /// Values that are read after a run; they live to its end.
    pub fn outputs(&self) -> &[NodeId] {
        &self.outputs
    }

    /// The node whose memory `id` is, through any chain of views.
    pub fn storage_of(&self, id: NodeId) -> NodeId {
        let mut at = id;
        while self.node(at).op.is_view() {
            at = self.node(at).inputs[0];
        }
        at
    }

    /// Whether `id` shows a state that is [declared](StateDecl::keys) to be nothing but keys.
    pub fn holds_keys(&self, id: NodeId) -> bool {
        matches!(self.node(self.storage_of(id)).op, Op::State(state) if self.keys.contains(&state))
    }

    /// Byte offset of `id` in the memory of [`storage_of`](Self::storage_of).
    pub fn offset_in_storage(&self, id: NodeId) -> Bytes {
        let (mut at, mut offset) = (id, 0);
        while self.node(at).op.is_view() {
            let node = self.node(at);
            let source = self.node(node.inputs[0]);
            if let Op::SliceRows { first_row } = node.op {
                offset += source.dtype.row_bytes(source.shape.cols).map_or(0, Bytes::get) * first_row as u64;
            }
            at = node.inputs[0];
        }
        Bytes::new(offset)
    }
}
