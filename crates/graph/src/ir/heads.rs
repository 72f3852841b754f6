//! What the rows that attention works on are made of.

use super::graph::ComputeGraph;
use super::node::NodeId;
use super::op::Op;

/// How heads come from the row of a product: each is normalised, then turned by its position; either step may be missing.
///
/// A backend that computes one token may do this where attention needs the heads, and never store them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    /// The row, `[n_tokens, n_heads * head_dim]` or a view of it.
    pub source: NodeId,
    /// The [`Op::RmsNorm`] of each head.
    pub norm: Option<NodeId>,
    /// The [`Op::Rope`].
    pub rope: Option<NodeId>,
}

impl ComputeGraph {
    /// How the heads in `id` came to be, as far back as nobody else reads a value on the way.
    pub fn heads(&self, id: NodeId, head_dim: usize) -> Heads {
        let mut heads = Heads { source: id, norm: None, rope: None };
        loop {
            let (at, node) = (heads.source, self.node(heads.source));
            match node.op {
                _ if !self.is_read_once(at) => return heads,
                Op::Reshape => {}
                Op::Rope(spec) if heads.norm.or(heads.rope).is_none() && spec.head_dim == head_dim => {
                    heads.rope = Some(at);
                }
                Op::RmsNorm { .. } if heads.norm.is_none() && node.shape.cols == head_dim => {
                    heads.norm = Some(at);
                }
                _ => return heads,
            }
            heads.source = node.inputs[0];
        }
    }

    /// Whether one operand of one node is all that shows the value.
    pub(super) fn is_read_once(&self, id: NodeId) -> bool {
        let reads = self.nodes.iter().flat_map(|node| &node.inputs).filter(|&&input| input == id).count();
        reads == 1 && !self.outputs.contains(&id)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{GraphBuilder, RopeSpec, RopeStyle, Rows, Shape, WeightDecl, WeightId};
    use super::*;
    use minfer_tensor::DType;

    const HEAD: usize = 8;

    /// Heads that are normalised and turned, and the row that they come from.
    fn graph(read_twice: bool) -> (ComputeGraph, [NodeId; 4]) {
        let mut b = GraphBuilder::new();
        let positions = b.input("positions", DType::I32, Shape::new(1, 1), Rows::PerToken(1)).unwrap();
        let x = b.input("x", DType::F32, Shape::new(1, 2 * HEAD), Rows::PerToken(1)).unwrap();
        let decl =
            WeightDecl { name: "w".into(), dtype: DType::F32, shape: Shape::new(1, HEAD), multiplied: false };
        let w = b.weight(WeightId::new(0), &decl).unwrap();
        let row = b.scale(x, 2.0).unwrap();
        let split = b.reshape(row, Shape::new(2, HEAD)).unwrap();
        let norm = b.rms_norm(split, w, 1e-6).unwrap();
        let whole = b.reshape(norm, Shape::new(1, 2 * HEAD)).unwrap();
        let spec = RopeSpec { head_dim: HEAD, n_rot: HEAD, style: RopeStyle::Halves, base: 1e4, scale: 1.0 };
        let rope = b.rope(whole, positions, None, spec).unwrap();
        let out = b.scale(rope, 1.0).unwrap();
        b.output(out);
        if read_twice {
            let other = b.scale(norm, 3.0).unwrap();
            b.output(other);
        }
        (b.finish().unwrap(), [row, norm, whole, rope])
    }

    #[test]
    fn a_norm_and_a_turn_are_traced_to_the_row() {
        let (graph, [row, norm, whole, rope]) = graph(false);
        let heads = graph.heads(rope, HEAD);
        assert_eq!((heads.norm, heads.rope), (Some(norm), Some(rope)));
        assert_eq!(graph.storage_of(heads.source), row);
        assert_eq!(graph.heads(whole, HEAD).rope, None);
    }

    #[test]
    fn a_value_that_others_read_or_other_heads_are_not_passed() {
        let (graph, [.., norm, whole, rope]) = graph(true);
        let heads = graph.heads(rope, HEAD);
        assert_eq!((heads.source, heads.norm, heads.rope), (norm, None, Some(rope)));
        assert_eq!(graph.heads(whole, 2 * HEAD).source, norm);
        assert_eq!(graph.heads(rope, 2 * HEAD), Heads { source: rope, norm: None, rope: None });
    }
}
