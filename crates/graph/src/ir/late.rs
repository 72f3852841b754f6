//! What a backend may put off.

use super::graph::ComputeGraph;
use super::node::NodeId;
use super::op::Op;

impl ComputeGraph {
    /// Values that a backend may read later than the nodes that have them as operands, because it puts those nodes off to `id`
    /// or is still at them when others are further on; and up to which node.
    ///
    /// Of one token, what [`Heads`](super::Heads) are made of, and rows that are to be written, wait for attention. (A
    /// rotation works in place, so its operand needs no more time.) Of a [`PostNorm`](super::PostNorm) each thread may compute
    /// all for itself, while others are at the products of the next norm.
    pub fn late_reads(&self, id: NodeId) -> Vec<(NodeId, NodeId)> {
        let node = self.node(id);
        let mut late = Vec::new();
        match node.op {
            Op::Attention(spec) if node.shape.rows == 1 => {
                for &operand in &node.inputs[..3] {
                    let written = self.node(operand).op == Op::WriteRows;
                    let row = if written { self.node(operand).inputs[1] } else { operand };
                    let heads = self.heads(row, spec.head_dim);
                    late.push((row, id));
                    late.extend(heads.norm.map(|_| (heads.source, id)));
                }
            }
            Op::RmsNorm { .. } => {
                let last =
                    self.post_norm(id).and_then(|norm| Some((norm, self.readers(norm.next).next_back()?)));
                late.extend(last.into_iter().flat_map(|(norm, last)| [(norm.delta, last), (norm.x, last)]));
            }
            _ => {}
        }
        late
    }
}
