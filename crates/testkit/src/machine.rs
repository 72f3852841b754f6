//! Hash arithmetic: runs graphs on values that are hashes of what they were made from.
//!
//! Every row of a result is the hash of its operation and of the rows it depends on, so two runs agree on an output only
//! if every value on the way was there, whole and unharmed, when it was read. Nothing is rounded, nothing is close.

use minfer_graph::scheduler::window_of;
use minfer_graph::{BatchCounts, BufRef, CNode, ComputeGraph, NodeId, Op};
use minfer_tensor::Bytes;

/// Bytes by buffer.
pub(crate) trait Memory {
    /// The bytes of a window; an error in words if the buffer is gone or too short.
    fn bytes(&self, at: BufRef) -> Result<&[u8], String>;
    /// The same, to write.
    fn bytes_mut(&mut self, at: BufRef) -> Result<&mut [u8], String>;
}

/// Where an operand comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    /// A weight, by the hash of its bytes.
    Weight(u64),
    /// A value in a buffer.
    Place(BufRef),
}

/// A node with the place of everything it touches: ready to run without its graph, as a captured launch.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    node: CNode,
    key: u64,
    operands: Vec<(CNode, Source)>,
    result: BufRef,
}

impl Step {
    /// Captures a node. `source` and `result` say where its operands and itself are.
    pub(crate) fn new(
        graph: &ComputeGraph,
        id: NodeId,
        source: impl Fn(NodeId) -> Source,
        result: BufRef,
    ) -> Self {
        let node = graph.node(id).clone();
        let operands = node.inputs.iter().map(|&x| (graph.node(x).clone(), source(x))).collect();
        let key = mix(0, format!("{:?}", node.op).as_bytes());
        Self { node, key, operands, result }
    }

    /// Computes the live rows.
    pub(crate) fn run(&self, memory: &mut impl Memory, counts: BatchCounts) -> Result<(), String> {
        let driver = if self.node.op == Op::WriteRows { &self.operands[1].0 } else { &self.node };
        for row in 0..driver.rows.live(driver.shape, counts) {
            let Some((to, hash)) = self.row(memory, row, counts)? else { continue };
            let out = memory.bytes_mut(row_at(&self.node, self.result, to)?)?;
            match hash {
                Some(hash) => expand(hash, out),
                None => out.fill(0),
            }
        }
        Ok(())
    }

    /// Which row of the result to write, and its hash; a row of zeros has none.
    fn row(
        &self,
        memory: &impl Memory,
        row: usize,
        counts: BatchCounts,
    ) -> Result<Option<(usize, Option<u64>)>, String> {
        match self.node.op {
            Op::GetRows => Ok(Some((row, self.gathered(memory, row)?))),
            Op::WriteRows => {
                let position = self.integer(memory, 2, row)?;
                let hash = mix(self.key, self.operand_row(memory, 1, row)?);
                Ok(usize::try_from(position).ok().map(|to| (to, Some(hash))))
            }
            Op::Attention(_) => Ok(Some((row, self.attended(memory, row)?))),
            _ => Ok(Some((row, Some(self.plain(memory, row, counts)?)))),
        }
    }

    fn gathered(&self, memory: &impl Memory, row: usize) -> Result<Option<u64>, String> {
        let id = self.integer(memory, 1, row)?;
        let Ok(index) = usize::try_from(id) else { return Ok(None) };
        Ok(Some(match self.operands[0].1 {
            Source::Weight(hash) => mix(mix(self.key, &hash.to_le_bytes()), &id.to_le_bytes()),
            Source::Place(_) => mix(self.key, self.operand_row(memory, 0, index)?),
        }))
    }

    fn attended(&self, memory: &impl Memory, row: usize) -> Result<Option<u64>, String> {
        let Ok(position) = usize::try_from(self.integer(memory, 3, row)?) else { return Ok(None) };
        let mut hash = mix(self.key, self.operand_row(memory, 0, row)?);
        for past in 0..=position {
            hash = mix(hash, self.operand_row(memory, 1, past)?);
            hash = mix(hash, self.operand_row(memory, 2, past)?);
        }
        Ok(Some(hash))
    }

    /// A row of the result depends on the same row of each operand, and on all of a fixed one.
    fn plain(&self, memory: &impl Memory, row: usize, counts: BatchCounts) -> Result<u64, String> {
        let mut hash = self.key;
        for (index, (node, source)) in self.operands.iter().enumerate() {
            hash = match source {
                Source::Weight(weight) => mix(hash, &weight.to_le_bytes()),
                Source::Place(place) if node.rows == minfer_graph::Rows::Fixed => {
                    mix(hash, memory.bytes(window_of(node, *place, counts))?)
                }
                Source::Place(_) => mix(hash, self.operand_row(memory, index, row)?),
            };
        }
        Ok(hash)
    }

    fn operand_row<'m>(
        &self,
        memory: &'m impl Memory,
        operand: usize,
        row: usize,
    ) -> Result<&'m [u8], String> {
        match &self.operands[operand] {
            (node, Source::Place(place)) => memory.bytes(row_at(node, *place, row)?),
            (_, Source::Weight(_)) => {
                Err(format!("operand {operand} of {} is a weight", self.node.op.name()))
            }
        }
    }

    fn integer(&self, memory: &impl Memory, operand: usize, row: usize) -> Result<i32, String> {
        let bytes = self.operand_row(memory, operand, row)?;
        bytes.try_into().map(i32::from_le_bytes).map_err(|_| format!("an i32 of {} bytes", bytes.len()))
    }
}

fn row_at(node: &CNode, place: BufRef, row: usize) -> Result<BufRef, String> {
    if row >= node.shape.rows {
        return Err(format!("row {row} of {} {}", node.op.name(), node.shape));
    }
    let len = node.dtype.row_bytes(node.shape.cols).unwrap_or(Bytes::ZERO);
    let offset = Bytes::new(place.offset.get() + len.get() * row as u64);
    Ok(BufRef { offset, len, ..place })
}

/// Folds bytes into a hash (multiply and rotate, eight at a time).
pub(crate) fn mix(hash: u64, bytes: &[u8]) -> u64 {
    let fold = |h: u64, word: u64| (h.rotate_left(29) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut chunks = bytes.chunks_exact(8);
    let mut h = fold(hash, bytes.len() as u64);
    for chunk in &mut chunks {
        h = fold(h, chunk.iter().rev().fold(0, |word, &b| word << 8 | u64::from(b)));
    }
    chunks.remainder().iter().fold(h, |h, &b| fold(h, u64::from(b)))
}

/// Fills bytes with a stream that only the hash decides.
fn expand(hash: u64, out: &mut [u8]) {
    let mut state = hash;
    for chunk in out.chunks_mut(8) {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let word = (state ^ (state >> 31)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
    }
}
