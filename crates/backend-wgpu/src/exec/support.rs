//! Which operations there are kernels for.

use minfer_graph::{CNode, Op};
use minfer_tensor::DType;

use crate::kernels::{Kernel, RopeParams};

/// Whether a node can run with operands of these types.
pub(crate) fn supports(node: &CNode, operands: &[DType]) -> bool {
    let of = |index: usize, has: &dyn Fn(DType) -> bool| operands.get(index).is_some_and(|&dtype| has(dtype));
    match &node.op {
        Op::GetRows | Op::MatMul => of(0, &Kernel::reads),
        Op::WriteRows => of(0, &Kernel::keeps),
        Op::Attention(spec) => {
            of(1, &|k| Kernel::attends(k, spec.head_dim)) && operands.get(1) == operands.get(2)
        }
        Op::Rope(spec) => RopeParams::fits(spec),
        _ => true,
    }
}
