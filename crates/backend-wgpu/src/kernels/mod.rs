//! The kernels: which variants there are, their WGSL, their bindings, parameters and number of workgroups.

mod angles;
mod params;
mod source;

#[cfg(test)]
mod tests;

use minfer_graph::{Activation, RopeStyle};
use minfer_tensor::DType;

pub(crate) use params::{
    AttentionParams, ElementParams, GetRowsParams, MatMulParams, Params, RmsNormParams, RopeParams,
    WriteRowsParams,
};

/// Bytes of parameters that every pipeline has room for.
pub(crate) const MAX_PARAMS_BYTES: u32 = 128;
/// Workgroups along one dimension of a dispatch that every adapter allows.
const MAX_WORKGROUPS: u32 = 65535;
/// Rows of a weight that a workgroup of [`Kernel::MatVec`] has.
const MAT_VEC_ROWS: u32 = 4;
/// Rows of a weight, and of the activations, that a workgroup of [`Kernel::MatMul`] has.
const MAT_MUL_TILE: u32 = 64;
/// Most rows of activations for which the weight is read again rather than tiled.
const MAT_VEC_MAX_ROWS: usize = 8;
/// Columns from which a norm takes the larger workgroup.
const WIDE_ROW: usize = 1024;

/// How a kernel uses a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Access {
    /// Read only; no other binding of the dispatch may show the same buffer.
    Read,
    /// Readable and writable, whether it is written or not. Several bindings may show the same buffer.
    ReadWrite,
}

/// A kernel variant: all that its pipeline depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kernel {
    /// `x · wᵀ` for few rows of `x`. Bindings: weight, x, result.
    MatVec {
        /// Element type of the weight.
        format: DType,
        /// Rows of `x` that share a reading of the weight; any number of rows is computed.
        tokens: u32,
        /// Whether subgroups add up.
        subgroup: bool,
    },
    /// `x · wᵀ` for many rows of `x`. Bindings as [`Kernel::MatVec`].
    MatMul {
        /// Element type of the weight.
        format: DType,
    },
    /// Decoded rows of a table. Bindings: table, ids, result.
    GetRows {
        /// Element type of the table.
        format: DType,
        /// [`Access::ReadWrite`] if the table lies in a buffer that is bound elsewhere too.
        table: Access,
    },
    /// Rows over their root mean square. Bindings: x, weight, result; the result may be x.
    RmsNorm {
        /// Whether a row has a large workgroup.
        wide: bool,
        /// Whether subgroups add up.
        subgroup: bool,
    },
    /// A sum. Bindings: x, y, result; the result may be either.
    Add,
    /// Times a constant. Bindings: x, result; the result may be x.
    Scale,
    /// `cap * tanh(x / cap)`. Bindings as [`Kernel::Scale`].
    Softcap,
    /// `act(gate) * up`. Bindings: gate, up, result; the result may be either.
    Glu(Activation),
    /// Rotated heads. Bindings: x, positions, result, then the factors if there are any; the result may be x.
    Rope {
        /// Which elements pair up.
        style: RopeStyle,
        /// Whether frequencies are divided by factors.
        factors: bool,
    },
    /// Rows into a state. Bindings: state, x, positions.
    WriteRows {
        /// Element type of the state.
        state: DType,
    },
    /// Causal attention. Bindings: q, keys, values, positions, result.
    Attention {
        /// Element type of keys and values.
        state: DType,
        /// Elements of a head.
        head_dim: u32,
        /// Whether subgroups, of eight invocations at least, add up.
        subgroup: bool,
    },
}

impl Kernel {
    /// Whether weights of an element type can be unpacked.
    pub(crate) fn reads(format: DType) -> bool {
        source::format(format).is_some()
    }

    /// Whether states of an element type can be written and attended to.
    pub(crate) fn keeps(state: DType) -> bool {
        matches!(state, DType::F32 | DType::F16 | DType::Q8_0)
    }

    /// Whether there is attention over heads of `head_dim` elements in states of an element type: heads are whole blocks.
    pub(crate) fn attends(state: DType, head_dim: usize) -> bool {
        Self::keeps(state) && head_dim.is_multiple_of(state.block_len())
    }

    /// The product for `rows` rows of activations.
    pub(crate) fn product(format: DType, subgroup: bool, rows: usize) -> Self {
        match rows {
            0..=1 => Self::MatVec { format, tokens: 1, subgroup },
            2 => Self::MatVec { format, tokens: 2, subgroup },
            3..=MAT_VEC_MAX_ROWS => Self::MatVec { format, tokens: 4, subgroup },
            _ => Self::MatMul { format },
        }
    }

    /// The norm of rows of `cols` columns.
    pub(crate) fn rms_norm(subgroup: bool, cols: usize) -> Self {
        Self::RmsNorm { wide: cols >= WIDE_ROW, subgroup }
    }

    /// The WGSL module, whose entry point is `main`.
    pub(crate) fn source(self) -> String {
        source::compose(self)
    }

    /// How each binding of group 0 is used, in order.
    pub(crate) fn bindings(self) -> &'static [Access] {
        use Access::{Read, ReadWrite};
        match self {
            Self::MatVec { .. } | Self::MatMul { .. } | Self::GetRows { table: Read, .. } => {
                &[Read, ReadWrite, ReadWrite]
            }
            Self::Scale | Self::Softcap => &[ReadWrite; 2],
            Self::GetRows { table: ReadWrite, .. }
            | Self::RmsNorm { .. }
            | Self::Add
            | Self::Glu(_)
            | Self::Rope { factors: false, .. }
            | Self::WriteRows { .. } => &[ReadWrite; 3],
            Self::Rope { factors: true, .. } => &[ReadWrite; 4],
            Self::Attention { .. } => &[ReadWrite; 5],
        }
    }

    /// Invocations of a workgroup.
    fn workgroup_size(self) -> u32 {
        match self {
            Self::MatVec { .. } | Self::RmsNorm { wide: false, .. } => 64,
            Self::Attention { .. } => 128,
            _ => 256,
        }
    }

    /// Workgroups of a dispatch; none if there is nothing to compute. Panics if the parameters are another kernel's.
    pub(crate) fn workgroups(self, params: &Params) -> [u32; 3] {
        let size = u64::from(self.workgroup_size());
        let product = |a: u32, b: u32| u64::from(a) * u64::from(b);
        match (self, params) {
            (Self::MatVec { tokens, .. }, Params::MatMul(p)) => {
                fold(u64::from(p.n_out.div_ceil(MAT_VEC_ROWS)), p.rows.div_ceil(tokens))
            }
            (Self::MatMul { .. }, Params::MatMul(p)) => {
                fold(u64::from(p.n_out.div_ceil(MAT_MUL_TILE)), p.rows.div_ceil(MAT_MUL_TILE))
            }
            (Self::GetRows { .. }, Params::GetRows(p)) => {
                fold(product(p.rows, p.cols.div_ceil(8)).div_ceil(size), 1)
            }
            (Self::RmsNorm { .. }, Params::RmsNorm(p)) => fold(u64::from(p.rows), 1),
            (Self::Add | Self::Scale | Self::Softcap | Self::Glu(_), Params::Element(p)) => {
                fold(product(p.rows, p.cols).div_ceil(size), 1)
            }
            (Self::Rope { .. }, Params::Rope(p)) => fold(product(p.rows, p.row_slots()).div_ceil(size), 1),
            (Self::WriteRows { .. }, Params::WriteRows(p)) => fold(u64::from(p.rows), 1),
            (Self::Attention { .. }, Params::Attention(p)) => fold(product(p.rows, p.n_heads), 1),
            (kernel, params) => panic!("{kernel:?} takes no {params:?}"),
        }
    }
}

/// `n` workgroups along x, folded into y where they are too many, by `z`. The last row of the fold may be partly beyond
/// `n`; kernels take care of it.
fn fold(n: u64, z: u32) -> [u32; 3] {
    let y = n.div_ceil(u64::from(MAX_WORKGROUPS));
    let clamp = |x: u64| u32::try_from(x).unwrap_or(u32::MAX);
    [clamp(n.min(u64::from(MAX_WORKGROUPS))), clamp(y), z]
}
