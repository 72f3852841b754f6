//! The operations. One list for every backend; `docs` of a variant give operands and result.

use super::node::{InputId, StateId, WeightId};

/// The gate of a gated feed-forward network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// `x / (1 + exp(-x))`.
    Silu,
    /// GELU in its tanh form: `0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))`.
    GeluTanh,
}

/// Which elements of a head are rotated together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RopeStyle {
    /// Neighbours: `(2i, 2i + 1)`, as `llama` files store their heads.
    Adjacent,
    /// Halves: `(i, i + n_rot / 2)`, as `qwen2`, `qwen3` and `gemma3` files do.
    Halves,
}

/// Rotary position embedding (Su et al. 2021): pair `i` turns by `position * scale * base^(-2i / n_rot)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RopeSpec {
    /// Elements of one head.
    pub head_dim: usize,
    /// Elements of a head that are rotated, from its first; even, at most `head_dim`.
    pub n_rot: usize,
    /// Which elements pair up.
    pub style: RopeStyle,
    /// Frequency base.
    pub base: f32,
    /// Factor on the position: 1 over the context extension of linear scaling, else 1.
    pub scale: f32,
}

/// Causal attention of query heads over the keys and values of one block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionSpec {
    /// Query heads.
    pub n_heads: usize,
    /// Key and value heads; divides `n_heads`.
    pub n_kv_heads: usize,
    /// Elements of a head, of queries, keys and values alike.
    pub head_dim: usize,
    /// Factor on the scores.
    pub scale: f32,
    /// Positions that a query sees, itself included; `None` sees all earlier ones.
    pub window: Option<usize>,
    /// `cap * tanh(score / cap)` on the scaled scores.
    pub softcap: Option<f32>,
}

/// What a node computes. `x`, `y` are f32 activations unless said otherwise.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// Leaf: a weight of the model, in its file's element type.
    Weight(WeightId),
    /// Leaf: filled by the host before a run.
    Input(InputId),
    /// Leaf: a persistent region that outlives graphs. Row `p` belongs to position `p`;
    /// of keys a backend may transpose blocks of rows.
    State(StateId),
    /// View of `x` with another shape of as many elements.
    Reshape,
    /// View of `x` from row `first_row` on.
    SliceRows {
        /// First row of `x` that the view shows.
        first_row: usize,
    },
    /// `[table, ids]`: rows of `table` (any element type) named by `ids` (i32 `[n, 1]`), as f32. A negative id gives a
    /// row of zeros.
    GetRows,
    /// `[w, x]`: `x · wᵀ`; `w` is `[n_out, n_in]`, `x` is `[n, n_in]`, the result `[n, n_out]`.
    MatMul,
    /// `[x, w]`: every row of `x` over its root mean square, times `w` (`[1, cols]`).
    RmsNorm {
        /// Added to the mean of squares.
        eps: f32,
    },
    /// `[x, y]`: sum; `y` of one fixed row is added to each row of `x`.
    Add,
    /// `[x]`: times a constant.
    Scale {
        /// The constant.
        factor: f32,
    },
    /// `[x]`: `cap * tanh(x / cap)`.
    Softcap {
        /// Largest magnitude of the result.
        cap: f32,
    },
    /// `[gate, up]`: `act(gate) * up`.
    Glu(Activation),
    /// `[x, positions]` or `[x, positions, factors]`: rotates every head of `x` `[n, n_heads * head_dim]`; `factors`
    /// (f32 `[1, n_rot / 2]`) divide the frequencies.
    Rope(RopeSpec),
    /// `[state, x, positions]`: writes row `i` of `x` to row `positions[i]` of the state, in its element type. A negative
    /// position is a padding row and is not written. The result is the state itself.
    WriteRows,
    /// `[q, k, v, positions]`: `q` is `[n, n_heads * head_dim]`; `k` and `v` are states `[n_ctx, n_kv_heads * head_dim]`.
    /// Row `i` sees the keys at positions up to its own. A negative position gives a row of zeros.
    Attention(AttentionSpec),
}

impl Op {
    /// Name in prints and messages.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Weight(_) => "weight",
            Op::Input(_) => "input",
            Op::State(_) => "state",
            Op::Reshape => "reshape",
            Op::SliceRows { .. } => "slice_rows",
            Op::GetRows => "get_rows",
            Op::MatMul => "mat_mul",
            Op::RmsNorm { .. } => "rms_norm",
            Op::Add => "add",
            Op::Scale { .. } => "scale",
            Op::Softcap { .. } => "softcap",
            Op::Glu(_) => "glu",
            Op::Rope(_) => "rope",
            Op::WriteRows => "write_rows",
            Op::Attention(_) => "attention",
        }
    }

    /// Whether the value exists before the graph runs.
    pub fn is_leaf(&self) -> bool {
        matches!(self, Op::Weight(_) | Op::Input(_) | Op::State(_))
    }

    /// Whether the result is its first operand's memory, at any lifetime: it owns no bytes of its own.
    pub fn is_view(&self) -> bool {
        matches!(self, Op::Reshape | Op::SliceRows { .. } | Op::WriteRows)
    }

    /// Whether a kernel runs for it: neither a leaf nor a mere view.
    pub fn has_work(&self) -> bool {
        !self.is_leaf() && !matches!(self, Op::Reshape | Op::SliceRows { .. })
    }

    /// Whether a kernel may write the result over its first operand when that one is not read again.
    pub fn may_run_in_place(&self) -> bool {
        matches!(self, Op::Add | Op::Scale { .. } | Op::Softcap { .. } | Op::Glu(_) | Op::Rope(_))
    }
}
