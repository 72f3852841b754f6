//! A graph as text, one node a line, and as Graphviz.

use std::fmt::{self, Write as _};

use super::graph::ComputeGraph;
use super::node::{CNode, NodeId, Rows};
use super::op::Op;

impl fmt::Display for ComputeGraph {
    /// `%7 = mat_mul(%3, %6) : f32 [8, 576] block 0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for id in self.ids() {
            let node = self.node(id);
            write!(f, "{id} = {}(", label(node))?;
            for (i, input) in node.inputs.iter().enumerate() {
                write!(f, "{}{input}", if i == 0 { "" } else { ", " })?;
            }
            write!(f, ") : {} {}{}", node.dtype, node.shape, rows_suffix(node.rows))?;
            if let Some(layer) = node.layer {
                write!(f, " block {layer}")?;
            }
            writeln!(f, "{}", if self.outputs().contains(&id) { " -> output" } else { "" })?;
        }
        Ok(())
    }
}

impl ComputeGraph {
    /// The graph in the DOT language, blocks as clusters.
    pub fn to_dot(&self) -> String {
        let mut dot = String::from("digraph {\n  rankdir=TB; node [shape=box, fontname=\"monospace\"];\n");
        for id in self.ids() {
            let node = self.node(id);
            let style = if node.op.is_leaf() { ", style=dashed" } else { "" };
            let line = format!(
                "n{} [label=\"{id} {}\\n{} {}\"{style}];",
                id.index(),
                label(node),
                node.dtype,
                node.shape
            );
            // Writing to a String can't fail.
            let _ = match node.layer {
                Some(l) => writeln!(dot, "  subgraph cluster_{l} {{ label=\"block {l}\"; {line} }}"),
                None => writeln!(dot, "  {line}"),
            };
        }
        for id in self.ids() {
            for &input in &self.node(id).inputs {
                let _ = writeln!(dot, "  n{} -> n{};", NodeId::index(input), id.index());
            }
        }
        dot.push_str("}\n");
        dot
    }
}

fn label(node: &CNode) -> String {
    match &node.op {
        Op::Weight(id) => format!("weight {id}"),
        Op::Input(id) => format!("input {id}"),
        Op::State(id) => format!("state {id}"),
        op => op.name().to_owned(),
    }
}

fn rows_suffix(rows: Rows) -> String {
    match rows {
        Rows::Fixed => String::new(),
        Rows::PerToken(1) => " per token".to_owned(),
        Rows::PerToken(n) => format!(" {n} per token"),
        Rows::PerOutput(1) => " per output".to_owned(),
        Rows::PerOutput(n) => format!(" {n} per output"),
    }
}
