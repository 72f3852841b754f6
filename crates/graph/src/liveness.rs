//! How long each value is needed: the last node that reads it, per backend.

use crate::backend::BackendId;
use crate::ir::{ComputeGraph, NodeId, Op};
use crate::scheduler::Assignment;

/// The deadline of every value of a graph under an assignment.
#[derive(Debug)]
pub(crate) struct Liveness {
    /// By backend and node: index of the last node that reads it there.
    last_read: Vec<Vec<Option<usize>>>,
    /// By node: whether the value is read by somebody else than a later node of its backend.
    survives: Vec<bool>,
}

impl Liveness {
    /// Deadlines by direct reads, outputs and crossings; then those of views moved to what they show (rule A8).
    pub(crate) fn of(graph: &ComputeGraph, assignment: &Assignment, n_backends: usize) -> Self {
        let n = graph.nodes().len();
        let mut live = Self { last_read: vec![vec![None; n]; n_backends], survives: vec![false; n] };
        for span in assignment.spans() {
            for &id in &span.nodes {
                for &operand in &graph.node(id).inputs {
                    live.read(graph, assignment, operand, span.backend, id);
                }
            }
        }
        for &output in graph.outputs() {
            live.extend(assignment.backend_of(output), output, usize::MAX);
            live.survives[graph.storage_of(output).index()] = true;
        }
        for id in graph.ids() {
            live.extend_late(graph, assignment, id);
        }
        for id in graph.ids().rev().filter(|&id| graph.node(id).op.is_view()) {
            live.extend_through_views(graph, id);
        }
        live
    }

    /// The last node that reads `id` on `backend`, through any view of it.
    pub(crate) fn last_read(&self, backend: BackendId, id: NodeId) -> Option<usize> {
        self.last_read[backend.index()][id.index()]
    }

    /// Whether the value must still be there after its last reader: an output, or a value that is copied to another
    /// backend when its span has run.
    pub(crate) fn survives(&self, id: NodeId) -> bool {
        self.survives[id.index()]
    }

    fn read(
        &mut self,
        graph: &ComputeGraph,
        assignment: &Assignment,
        operand: NodeId,
        backend: BackendId,
        reader: NodeId,
    ) {
        self.extend(backend, operand, reader.index());
        let storage = graph.storage_of(operand);
        if crosses(graph, assignment, storage, backend) {
            self.extend(assignment.backend_of(storage), storage, assignment.span_end(storage));
            self.survives[storage.index()] = true;
        }
    }

    fn extend(&mut self, backend: BackendId, id: NodeId, until: usize) {
        let deadline = &mut self.last_read[backend.index()][id.index()];
        *deadline = (*deadline).max(Some(until));
    }

    /// Values live until a backend may read them.
    fn extend_late(&mut self, graph: &ComputeGraph, assignment: &Assignment, id: NodeId) {
        let backend = assignment.backend_of(id);
        for (value, until) in graph.late_reads(id) {
            let storage = graph.storage_of(value);
            if !graph.node(storage).op.is_leaf() && assignment.backend_of(storage) == backend {
                self.extend(backend, value, until.index());
            }
        }
    }

    /// A view shows its operand's memory, so the operand lives as long. Later views first, so chains add up.
    fn extend_through_views(&mut self, graph: &ComputeGraph, view: NodeId) {
        let source = graph.node(view).inputs[0];
        for deadlines in &mut self.last_read {
            deadlines[source.index()] = deadlines[source.index()].max(deadlines[view.index()]);
        }
    }
}

/// Whether a computed value `storage` is read on another backend than its own.
pub(crate) fn crosses(
    graph: &ComputeGraph,
    assignment: &Assignment,
    storage: NodeId,
    reader: BackendId,
) -> bool {
    let leaf = matches!(graph.node(storage).op, Op::Weight(_) | Op::Input(_) | Op::State(_));
    !leaf && assignment.backend_of(storage) != reader
}
