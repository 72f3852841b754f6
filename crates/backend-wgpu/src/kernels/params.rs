//! What a dispatch passes as immediates. Places are counted in elements of a binding, those of raw blocks in bytes.

use bytemuck::{Pod, Zeroable};

/// Of [`Kernel::MatVec`](super::Kernel::MatVec) and [`Kernel::MatMul`](super::Kernel::MatMul).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub(crate) struct MatMulParams {
    /// Live rows of x.
    pub(crate) rows: u32,
    /// Columns of x and of the weight.
    pub(crate) cols: u32,
    /// Rows of the weight that are bound, at least 1.
    pub(crate) n_out: u32,
    /// Bytes of a row of the weight.
    pub(crate) row_bytes: u32,
    /// First byte of the weight's rows.
    pub(crate) weights: u32,
    /// First element of x.
    pub(crate) x: u32,
    /// Element of the result for the first row of x and the first bound row of the weight.
    pub(crate) out: u32,
    /// Columns of the result: rows of the whole weight.
    pub(crate) out_cols: u32,
}

/// Of [`Kernel::GetRows`](super::Kernel::GetRows). Ids of rows that aren't bound are left to other dispatches; the one
/// whose `first_row` is 0 writes zeros for negative ids.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub(crate) struct GetRowsParams {
    /// Live ids.
    pub(crate) rows: u32,
    /// Columns of the table.
    pub(crate) cols: u32,
    /// Row of the table that is the first one bound.
    pub(crate) first_row: u32,
    /// Rows that are bound.
    pub(crate) n_rows: u32,
    /// Bytes of a row of the table.
    pub(crate) row_bytes: u32,
    /// First byte of the rows that are bound.
    pub(crate) table: u32,
    /// First id.
    pub(crate) ids: u32,
    /// First element of the result.
    pub(crate) out: u32,
}

/// Of [`Kernel::RmsNorm`](super::Kernel::RmsNorm).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub(crate) struct RmsNormParams {
    /// Live rows.
    pub(crate) rows: u32,
    /// Columns.
    pub(crate) cols: u32,
    /// First element of x.
    pub(crate) x: u32,
    /// First element of the weight.
    pub(crate) w: u32,
    /// First element of the result.
    pub(crate) out: u32,
    /// Added to the mean of squares.
    pub(crate) eps: f32,
}

/// Of [`Kernel::Add`](super::Kernel::Add), [`Kernel::Scale`](super::Kernel::Scale),
/// [`Kernel::Softcap`](super::Kernel::Softcap) and [`Kernel::Glu`](super::Kernel::Glu).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub(crate) struct ElementParams {
    /// Live rows.
    pub(crate) rows: u32,
    /// Columns.
    pub(crate) cols: u32,
    /// First element of x or of the gate.
    pub(crate) x: u32,
    /// First element of the second operand; 0 without one.
    pub(crate) y: u32,
    /// First element of the result.
    pub(crate) out: u32,
    /// Elements of the second operand, after which it repeats; at least 1.
    pub(crate) y_len: u32,
    /// The factor or the cap; 0 without one.
    pub(crate) constant: f32,
}

/// Of [`Kernel::Rope`](super::Kernel::Rope).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub(crate) struct RopeParams {
    /// Frequencies; [`RopeParams::new`] knows them.
    pub(super) mantissas: [u32; 12],
    pub(super) exponents: [i8; 16],
    pub(super) unit: u32,
    /// Live rows.
    pub(crate) rows: u32,
    /// Columns: whole heads.
    pub(crate) cols: u32,
    /// Elements of a head.
    pub(crate) head_dim: u32,
    /// Elements of a head that are rotated.
    pub(crate) n_rot: u32,
    /// First element of x.
    pub(crate) x: u32,
    /// First position.
    pub(crate) positions: u32,
    /// First factor; 0 without factors.
    pub(crate) factors: u32,
    /// First element of the result.
    pub(crate) out: u32,
    /// The size of the block in the kernel is a multiple of 16.
    pub(super) padding: [u32; 3],
}

impl RopeParams {
    /// Invocations for a row: a pair or an element that isn't rotated each.
    pub(super) fn row_slots(&self) -> u32 {
        self.cols / self.head_dim * (self.head_dim - self.n_rot / 2)
    }
}

/// Of [`Kernel::WriteRows`](super::Kernel::WriteRows).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub(crate) struct WriteRowsParams {
    /// Live rows of x.
    pub(crate) rows: u32,
    /// Columns.
    pub(crate) cols: u32,
    /// First element of x.
    pub(crate) x: u32,
    /// First position.
    pub(crate) positions: u32,
    /// First byte of the state, of a whole number of words.
    pub(crate) state: u32,
    /// Rows of the state; other positions are not written.
    pub(crate) state_rows: u32,
}

/// Of [`Kernel::Attention`](super::Kernel::Attention).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub(crate) struct AttentionParams {
    /// Live rows of q.
    pub(crate) rows: u32,
    /// Query heads.
    pub(crate) n_heads: u32,
    /// Heads of keys and values; divides `n_heads`.
    pub(crate) n_kv_heads: u32,
    /// Rows of the states.
    pub(crate) state_rows: u32,
    /// Bytes of a row of a state.
    pub(crate) row_bytes: u32,
    /// First element of q.
    pub(crate) q: u32,
    /// First byte of the keys, of a whole number of words.
    pub(crate) k: u32,
    /// First byte of the values, of a whole number of words.
    pub(crate) v: u32,
    /// First position.
    pub(crate) positions: u32,
    /// First element of the result.
    pub(crate) out: u32,
    /// Positions that a query sees, itself included; `u32::MAX` for all.
    pub(crate) window: u32,
    /// Factor on the scores.
    pub(crate) scale: f32,
    /// Bound of the scores; 0 for none.
    pub(crate) softcap: f32,
}

/// The parameters of one dispatch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Params {
    /// Of a matrix product.
    MatMul(MatMulParams),
    /// Of a gather.
    GetRows(GetRowsParams),
    /// Of a norm.
    RmsNorm(RmsNormParams),
    /// Of an operation on elements.
    Element(ElementParams),
    /// Of a rotation.
    Rope(RopeParams),
    /// Of a write to a state.
    WriteRows(WriteRowsParams),
    /// Of attention.
    Attention(AttentionParams),
}

impl Params {
    /// The immediates of the dispatch: at most 128 bytes, a whole number of words.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::MatMul(p) => bytemuck::bytes_of(p),
            Self::GetRows(p) => bytemuck::bytes_of(p),
            Self::RmsNorm(p) => bytemuck::bytes_of(p),
            Self::Element(p) => bytemuck::bytes_of(p),
            Self::Rope(p) => bytemuck::bytes_of(p),
            Self::WriteRows(p) => bytemuck::bytes_of(p),
            Self::Attention(p) => bytemuck::bytes_of(p),
        }
    }

    /// Changes the number of live rows of the operand that counts them.
    pub(crate) fn set_rows(&mut self, rows: u32) {
        let live = match self {
            Self::MatMul(p) => &mut p.rows,
            Self::GetRows(p) => &mut p.rows,
            Self::RmsNorm(p) => &mut p.rows,
            Self::Element(p) => &mut p.rows,
            Self::Rope(p) => &mut p.rows,
            Self::WriteRows(p) => &mut p.rows,
            Self::Attention(p) => &mut p.rows,
        };
        *live = rows;
    }
}
