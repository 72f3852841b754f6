//! Norms that end a part of a block.

use super::graph::ComputeGraph;
use super::node::NodeId;
use super::op::Op;

/// A norm of one row that is only added to the residual stream, and the norm that the sum goes through next.
///
/// A backend may compute all three at once, in each of its threads, so that none waits for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PostNorm {
    /// What is normalised, `[1, n_embd]`.
    pub delta: NodeId,
    /// The residual stream before, `[1, n_embd]`.
    pub x: NodeId,
    /// The [`Op::Add`] of both.
    pub sum: NodeId,
    /// The [`Op::RmsNorm`] of the sum.
    pub next: NodeId,
}

impl ComputeGraph {
    /// Where the norm `id` goes, if it ends a part of a block.
    pub fn post_norm(&self, id: NodeId) -> Option<PostNorm> {
        let norm = self.node(id);
        if !matches!(norm.op, Op::RmsNorm { .. }) || norm.shape.rows != 1 || !self.is_read_once(id) {
            return None;
        }
        let sum = self.readers(id).next()?;
        let [a, b] = self.node(sum).inputs[..] else { return None };
        let (x, adds) = (if a == id { b } else { a }, self.node(sum).op == Op::Add);
        let next = self.readers(sum).next()?;
        let goes_on = matches!(self.node(next).op, Op::RmsNorm { .. }) && self.node(next).inputs[0] == sum;
        let alike = [x, sum, next].iter().all(|&value| self.node(value).shape == norm.shape);
        (adds && goes_on && alike).then_some(PostNorm { delta: norm.inputs[0], x, sum, next })
    }

    /// The nodes that read a value, first to last.
    pub fn readers(&self, id: NodeId) -> impl DoubleEndedIterator<Item = NodeId> {
        self.ids().filter(move |&reader| self.node(reader).inputs.contains(&id))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{GraphBuilder, Rows, Shape, WeightDecl, WeightId};
    use super::*;
    use minfer_tensor::DType;

    /// A norm that is added to a stream of `rows` rows, then normalised; the norms and the sum.
    fn graph(rows: usize, is_output: bool) -> (ComputeGraph, PostNorm, NodeId) {
        let shape = Shape::new(rows, 8);
        let mut b = GraphBuilder::new();
        let x = b.input("x", DType::F32, shape, Rows::PerToken(1)).unwrap();
        let decl =
            WeightDecl { name: "w".into(), dtype: DType::F32, shape: Shape::new(1, 8), multiplied: false };
        let w = b.weight(WeightId::new(0), &decl).unwrap();
        let delta = b.scale(x, 2.0).unwrap();
        let norm = b.rms_norm(delta, w, 1e-6).unwrap();
        let sum = b.add(norm, x).unwrap();
        let next = b.rms_norm(sum, w, 1e-6).unwrap();
        let after = b.add(next, sum).unwrap();
        b.output(after);
        if is_output {
            b.output(norm);
        }
        (b.finish().unwrap(), PostNorm { delta, x, sum, next }, norm)
    }

    #[test]
    fn a_norm_goes_into_the_stream_and_the_next_norm() {
        let (graph, expected, norm) = graph(1, false);
        assert_eq!(graph.post_norm(norm), Some(expected));
        assert_eq!(graph.readers(expected.sum).count(), 2);
    }

    #[test]
    fn norms_of_many_rows_or_for_others_or_before_no_norm_are_none() {
        let (many, _, norm) = graph(2, false);
        assert_eq!(many.post_norm(norm), None);
        let (shown, of, norm) = graph(1, true);
        assert_eq!(shown.post_norm(norm), None);
        // The last sum goes nowhere.
        assert_eq!(shown.post_norm(of.next), None);
    }
}
