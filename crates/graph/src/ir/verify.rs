//! The invariants of a graph. Run after every pass in debug builds and in tests.

use super::error::GraphError;
use super::graph::ComputeGraph;
use super::node::{CNode, NodeId, Rows};
use super::op::Op;

/// Checks what every reader of a graph relies on:
/// operands come first and are as many as the operation takes; every value has a size; a view shows bytes that its source
/// has; a value that is overwritten in a state is read only after the write; keys are only written and attended to;
/// inputs and outputs exist.
pub fn verify(graph: &ComputeGraph) -> Result<(), GraphError> {
    for id in graph.ids() {
        verify_node(graph, id).map_err(|what| GraphError::Invalid { node: id, what })?;
    }
    for (name, id) in graph.inputs() {
        let is_input = graph.nodes().get(id.index()).is_some_and(|n| matches!(n.op, Op::Input(_)));
        check(is_input, || format!("input \"{name}\" is no input node"))
            .map_err(|what| GraphError::Invalid { node: *id, what })?;
    }
    for &id in graph.outputs() {
        let computed = id.index() < graph.nodes().len() && !graph.node(graph.storage_of(id)).op.is_leaf();
        check(computed, || "an output must be computed".to_owned())
            .map_err(|what| GraphError::Invalid { node: id, what })?;
    }
    Ok(())
}

fn verify_node(graph: &ComputeGraph, id: NodeId) -> Result<(), String> {
    let node = graph.node(id);
    for &input in &node.inputs {
        check(input < id, || format!("operand {input} does not come before it"))?;
    }
    let arity = operand_count(&node.op);
    check(arity.contains(&node.inputs.len()), || {
        format!("{} takes {arity:?} operands, has {}", node.op.name(), node.inputs.len())
    })?;
    check(node.shape.nbytes(node.dtype).is_some(), || format!("{} {} has no size", node.shape, node.dtype))?;
    verify_rows(node)?;
    verify_view(graph, node)?;
    verify_keys(graph, node)?;
    verify_state_order(graph, id)
}

fn operand_count(op: &Op) -> std::ops::RangeInclusive<usize> {
    match op {
        Op::Weight(_) | Op::Input(_) | Op::State(_) => 0..=0,
        Op::Reshape | Op::SliceRows { .. } | Op::Scale { .. } | Op::Softcap { .. } => 1..=1,
        Op::GetRows | Op::MatMul | Op::RmsNorm { .. } | Op::Add | Op::Glu(_) => 2..=2,
        Op::Rope(_) => 2..=3,
        Op::WriteRows => 3..=3,
        Op::Attention(_) => 4..=4,
    }
}

fn verify_rows(node: &CNode) -> Result<(), String> {
    let whole = match node.rows {
        Rows::Fixed => true,
        Rows::PerToken(n) | Rows::PerOutput(n) => n > 0 && node.shape.rows.is_multiple_of(n),
    };
    check(whole, || format!("{} rows are not whole groups of {:?}", node.shape.rows, node.rows))
}

fn verify_view(graph: &ComputeGraph, node: &CNode) -> Result<(), String> {
    if !node.op.is_view() {
        return Ok(());
    }
    let source = graph.node(node.inputs[0]);
    check(source.dtype == node.dtype, || format!("a {} view of {}", node.dtype, source.dtype))?;
    let fits = match node.op {
        Op::SliceRows { first_row } => {
            let end = first_row.checked_add(node.shape.rows);
            source.shape.cols == node.shape.cols && end.is_some_and(|end| end <= source.shape.rows)
        }
        Op::WriteRows => {
            let storage = graph.node(graph.storage_of(node.inputs[0]));
            source.shape == node.shape && matches!(storage.op, Op::State(_))
        }
        _ => source.nbytes() == node.nbytes(),
    };
    check(fits, || format!("a view {} of {}", node.shape, source.shape))
}

/// Nobody but a write and attention knows how keys are laid out.
fn verify_keys(graph: &ComputeGraph, node: &CNode) -> Result<(), String> {
    let fits = |nth| matches!((&node.op, nth), (Op::WriteRows, 0) | (Op::Attention(_), 1));
    let keys = node.inputs.iter().enumerate().find(|&(nth, &input)| !fits(nth) && graph.holds_keys(input));
    check(keys.is_none(), || format!("{} can't read keys", node.op.name()))
}

/// A state is one memory: whoever reads it must come through the latest write before it, or the read would depend on
/// the order of execution and not on the graph.
fn verify_state_order(graph: &ComputeGraph, id: NodeId) -> Result<(), String> {
    let node = graph.node(id);
    for &input in &node.inputs {
        let storage = graph.storage_of(input);
        if !matches!(graph.node(storage).op, Op::State(_)) {
            continue;
        }
        let latest = (0..id.index())
            .rev()
            .map(NodeId::new)
            .find(|&w| graph.node(w).op == Op::WriteRows && graph.storage_of(w) == storage);
        let seen = latest.is_none_or(|w| reaches(graph, input, w));
        check(seen, || format!("reads {storage} past a write to it"))?;
    }
    Ok(())
}

fn reaches(graph: &ComputeGraph, from: NodeId, write: NodeId) -> bool {
    let mut at = from;
    while at != write && graph.node(at).op.is_view() {
        at = graph.node(at).inputs[0];
    }
    at == write
}

fn check(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}
