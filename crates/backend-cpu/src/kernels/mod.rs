//! Kernel tables, one per instruction set.
//!
//! Every kernel is written once over a narrow trait of sixteen-lane operations and compiled for each
//! instruction set. All tables give the same bits (the payload of a NaN apart), whatever the number of threads
//! or of tokens. Kernels allocate nothing: the caller passes scratch of a size that a pure function declares.
#![allow(unsafe_code, reason = "the unsafe entry points state the contract of the pointer kernels")]

mod attention;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod dense;
mod format;
mod limits;
mod math;
mod matmul;
#[cfg(target_arch = "aarch64")]
mod neon;
mod pack;
mod quantize;
mod rope;
mod scalar;
mod share;
mod simd;
#[cfg(test)]
mod tests;
mod vector;

pub use attention::{Attention, CHUNK, KEY_BLOCK};
pub use rope::{RopeAngles, rope_frequencies};
pub use share::Share;

use attention::{Attend, AttendChunks, MergeChunks};
use dense::{Bf16, DenseMatMul, F16, F32, FloatMatMul, ToF16};
use limits::{Products, ReadThrough};
use matmul::QuantMatMul;
use minfer_tensor::DType;
use minfer_tensor::quant::{self, QK};
use quantize::{QuantLayout, Quantize, ToQ8_0};
use simd::{Op, Simd};
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::LazyLock;
use vector::{Map, RmsNorm, Rope, Softmax, Zip, ZipKind};

/// Rows of a weight matrix that are computed together: split rows over threads at multiples of this.
pub const ROW_UNIT: usize = simd::LANES;

/// Tokens that are quantized and multiplied together: split tokens over threads at multiples of this.
pub const TOKEN_UNIT: usize = quantize::TILE;

/// Alignment of activations and scratch.
pub const ALIGN: usize = 64;

/// `out[token * stride + row] = weights[row] · x[token]` for some rows and all tokens.
#[derive(Clone, Debug)]
pub struct MatMul<'a> {
    /// Element type of the weights.
    pub dtype: DType,
    /// Weight matrix, `[rows][k]` as in the file or from [`pack`].
    pub weights: *const u8,
    /// If it is from [`pack`], which row of the first panel is row 0.
    pub packed: Option<usize>,
    /// Row length in elements.
    pub k: usize,
    /// Rows to compute.
    pub rows: Share<'a>,
    /// Number of tokens.
    pub tokens: usize,
    /// Activations: from [`Kernels::quantize`] if the type is quantized, else f32 `[tokens][k]`.
    pub x: *const u8,
    /// Result.
    pub out: *mut f32,
    /// Distance of the results of two tokens.
    pub stride: usize,
    /// [`matmul_scratch_bytes`] for this thread, aligned to [`ALIGN`].
    pub scratch: *mut u8,
}

/// The kernels of one instruction set.
pub struct Kernels {
    name: &'static str,
    quantize: fn(Quantize),
    matmul: fn(MatMul<'_>),
    attend: fn(DType, Attend<'_, F16>),
    attend_chunks: fn(DType, AttendChunks<'_, F16>),
    merge_chunks: fn(MergeChunks<'_>),
    rms_norm: fn(RmsNorm<'_>),
    softmax: fn(Softmax<'_>),
    map: fn(Map<'_>),
    zip: fn(Zip<'_>),
    rope: fn(Rope<'_>),
    to_f16: fn(ToF16<'_>),
    to_q8_0: fn(ToQ8_0<'_>),
    read_through: fn(ReadThrough<'_>) -> u32,
    products: fn(Products) -> u64,
}

/// The table of a capability token.
macro_rules! kernel_table {
    ($name:literal, $token:expr) => {
        $crate::kernels::Kernels {
            name: $name,
            quantize: |op| $token.run(op),
            matmul: |op| $token.run(op),
            attend: |dtype, op| $token.run($crate::kernels::ByKvType(dtype, op)),
            attend_chunks: |dtype, op| $token.run($crate::kernels::ByKvType(dtype, op)),
            merge_chunks: |op| $token.run(op),
            rms_norm: |op| $token.run(op),
            softmax: |op| $token.run(op),
            map: |op| $token.run(op),
            zip: |op| $token.run(op),
            rope: |op| $token.run(op),
            to_f16: |op| $token.run(op),
            to_q8_0: |op| $token.run(op),
            read_through: |op| $token.run(op),
            products: |op| $token.run(op),
        }
    };
}
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use kernel_table;

static SCALAR: Kernels = kernel_table!("scalar", scalar::Scalar);

/// Tables that this processor can run, best first.
static AVAILABLE: LazyLock<Vec<&'static Kernels>> = LazyLock::new(|| {
    #[cfg(target_arch = "x86_64")]
    let fast = [avx512::kernels(), avx2::vnni::kernels(), avx2::kernels()];
    #[cfg(target_arch = "aarch64")]
    let fast = [neon::kernels()];
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let fast: [Option<&Kernels>; 0] = [];
    fast.into_iter().flatten().chain([&SCALAR]).collect()
});

/// Runs an expression with `$format` as the kernels' type of a quantized [`DType`].
macro_rules! with_format {
    ($dtype:expr, $format:ident => $body:expr) => {
        with_format!($dtype, $format => $body, Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q4K Q5K Q6K)
    };
    ($dtype:expr, $format:ident => $body:expr, $($name:ident)*) => {
        match $dtype {
            $(DType::$name => {
                type $format = format::$name;
                $body
            })*
            DType::F32 | DType::F16 | DType::BF16 | DType::I32 => unreachable!("not a quantized type"),
        }
    };
}

/// Bytes of `rows` rows of `row_bytes` that [`pack`] writes; saturates.
pub fn packed_bytes(rows: usize, row_bytes: usize) -> usize {
    rows.checked_next_multiple_of(ROW_UNIT).map_or(usize::MAX, |rows| rows.saturating_mul(row_bytes))
}

/// Packs rows of a quantized type into panels of sixteen. `out` has [`packed_bytes`]; rows from a multiple of sixteen
/// on can be packed for themselves.
///
/// # Panics
/// If the type isn't quantized, or a length doesn't fit.
pub fn pack(dtype: DType, rows: &[u8], row_bytes: usize, out: &mut [u8]) {
    with_format!(dtype, F => pack::pack::<F>(rows, row_bytes, out));
}

/// Decodes row `row` of packed weights whose rows have `row_bytes`.
///
/// # Panics
/// If the type isn't quantized, there is no such row, or a length doesn't fit.
pub fn decode_packed_row(dtype: DType, packed: &[u8], row_bytes: usize, row: usize, out: &mut [f32]) {
    let panel = &packed[row / ROW_UNIT * ROW_UNIT * row_bytes..][..ROW_UNIT * row_bytes];
    with_format!(dtype, F => pack::decode_row::<F>(dtype, panel, row % ROW_UNIT, out));
}

/// Bytes of the activations that [`Kernels::quantize`] writes.
pub fn quantized_bytes(tokens: usize, k: usize) -> usize {
    QuantLayout::new(tokens, k).bytes()
}

/// Bytes of scratch that [`Kernels::matmul`] needs on each thread.
pub fn matmul_scratch_bytes(dtype: DType, tokens: usize, k: usize) -> usize {
    if dtype.is_quantized() { matmul::scratch_bytes(QuantLayout::new(tokens, k), tokens) } else { 0 }
}

/// Bytes of scratch that the attention kernels need on each thread.
pub fn attention_scratch_bytes(a: &Attention) -> usize {
    a.scratch_len() * size_of::<f32>()
}

impl Kernels {
    /// The best table for this processor.
    pub fn detect() -> &'static Kernels {
        AVAILABLE.first().copied().unwrap_or(&SCALAR)
    }

    /// The tables that this processor can run, best first.
    pub fn available() -> &'static [&'static Kernels] {
        &AVAILABLE
    }

    /// The table of that name, if this processor can run it: `avx512-vnni`, `avx-vnni` or `avx2` on x86-64, `neon-dotprod`
    /// on AArch64, `scalar` everywhere.
    pub fn by_name(name: &str) -> Option<&'static Kernels> {
        AVAILABLE.iter().copied().find(|k| k.name == name)
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Quantizes rows `range` of `x`, f32 `[tokens][k]`, into `out` of [`quantized_bytes`].
    ///
    /// # Safety
    /// `k` must be a multiple of 32, both pointers valid and aligned for all tokens, and no other thread
    /// may write the same tokens.
    pub unsafe fn quantize(&self, x: *const f32, tokens: usize, k: usize, range: Range<usize>, out: *mut u8) {
        (self.quantize)(Quantize { x, layout: QuantLayout::new(tokens, k), tokens: range, out });
    }

    /// Multiplies weights with activations.
    ///
    /// # Safety
    /// The pointers must be valid and aligned for what [`MatMul`] says, `k` a multiple of the weights'
    /// block, 16 weight rows shorter than 2 GiB, and no other thread may write the same rows of `out` or use
    /// the same scratch. The weights' type must not be I32.
    pub unsafe fn matmul(&self, m: MatMul<'_>) {
        (self.matmul)(m);
    }

    /// Attention of `tokens` and one key-value head, with keys and values in `dtype` (F16, F32 or Q8_0).
    ///
    /// # Safety
    /// The pointers must be valid and aligned for what [`Attention`] says, up to the largest position;
    /// `scratch` for [`attention_scratch_bytes`]; no other thread may write the same results or scratch.
    pub unsafe fn attend(
        &self,
        a: &Attention,
        dtype: DType,
        kv_head: usize,
        tokens: Range<usize>,
        scratch: *mut f32,
    ) {
        (self.attend)(dtype, Attend { a, kv_head, tokens, scratch, cached: PhantomData });
    }

    /// The same for some chunks of one token's keys: partial results into `out`, which has
    /// `[chunk][heads / kv_heads][Attention::partial_len]` for all chunks from 0.
    ///
    /// # Safety
    /// As for [`Kernels::attend`].
    #[allow(clippy::too_many_arguments, reason = "one work item of a split attention")]
    pub unsafe fn attend_chunks(
        &self,
        a: &Attention,
        dtype: DType,
        kv_head: usize,
        token: usize,
        chunks: Range<usize>,
        out: *mut f32,
        scratch: *mut f32,
    ) {
        (self.attend_chunks)(
            dtype,
            AttendChunks { a, kv_head, token, chunks, out, scratch, cached: PhantomData },
        );
    }

    /// Merges the partial results of all the token's chunks; the bits are those of [`Kernels::attend`].
    ///
    /// # Safety
    /// As for [`Kernels::attend`].
    pub unsafe fn merge_chunks(
        &self,
        a: &Attention,
        kv_head: usize,
        token: usize,
        chunks: Range<usize>,
        partials: *const f32,
        scratch: *mut f32,
    ) {
        (self.merge_chunks)(MergeChunks { a, kv_head, token, chunks, partials, scratch });
    }

    /// `out = x / sqrt(mean(x^2) + eps) * weight` for each row of `cols`.
    ///
    /// # Panics
    /// If the lengths don't fit together.
    pub fn rms_norm(&self, out: &mut [f32], x: &[f32], cols: usize, weight: Option<&[f32]>, eps: f32) {
        assert!(out.len() == x.len() && weight.is_none_or(|w| w.len() == cols), "rows of different length");
        (self.rms_norm)(RmsNorm { out, x, cols, weight, eps });
    }

    /// Softmax of one row in place.
    pub fn softmax(&self, row: &mut [f32]) {
        (self.softmax)(Softmax(row));
    }

    /// `x *= factor`.
    pub fn scale(&self, x: &mut [f32], factor: f32) {
        (self.map)(Map::Scale(x, factor));
    }

    /// `x = cap * tanh(x / cap)`.
    pub fn softcap(&self, x: &mut [f32], cap: f32) {
        (self.map)(Map::Softcap(x, cap));
    }

    /// `a += b`.
    ///
    /// # Panics
    /// If the lengths differ; so do the three below.
    pub fn add(&self, a: &mut [f32], b: &[f32]) {
        self.zip(ZipKind::Add, a, b);
    }

    /// `a *= b`.
    pub fn mul(&self, a: &mut [f32], b: &[f32]) {
        self.zip(ZipKind::Mul, a, b);
    }

    /// `a = silu(a) * b`.
    pub fn silu_mul(&self, a: &mut [f32], b: &[f32]) {
        self.zip(ZipKind::SiluMul, a, b);
    }

    /// `a = gelu(a) * b`, with the tanh form of GELU.
    pub fn gelu_mul(&self, a: &mut [f32], b: &[f32]) {
        self.zip(ZipKind::GeluMul, a, b);
    }

    fn zip(&self, kind: ZipKind, a: &mut [f32], b: &[f32]) {
        assert_eq!(a.len(), b.len(), "operands of different length");
        (self.zip)(Zip { kind, a, b });
    }

    /// Reads all of `bytes` and nothing else; gives their little-endian words, and the bytes after the last 512, folded
    /// with `or`.
    pub fn read_through(&self, bytes: &[u8]) -> u32 {
        (self.read_through)(ReadThrough(bytes))
    }

    /// Multiplies bytes and nothing else, in `rounds` (at most 2^24); gives the number of multiplications, each with its
    /// addition.
    pub fn products(&self, rounds: usize) -> u64 {
        (self.products)(Products(rounds))
    }

    /// Rotates each head of a row by `angles`; pairs are `(i, i + n / 2)` if `halves`, else neighbours.
    ///
    /// # Panics
    /// If a head has fewer values than are rotated.
    pub fn rope(&self, row: &mut [f32], head_dim: usize, angles: &RopeAngles<'_>, halves: bool) {
        let RopeAngles { cos, sin } = *angles;
        assert!(cos.len() == sin.len() && 2 * cos.len() <= head_dim, "more angles than pairs");
        (self.rope)(Rope { row, head_dim, cos, sin, halves });
    }

    /// Rounds `x` to f16 (nearest even), as bits.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn to_f16(&self, out: &mut [u16], x: &[f32]) {
        assert_eq!(out.len(), x.len(), "operands of different length");
        (self.to_f16)(ToF16 { out, x });
    }

    /// Rounds `x` to blocks of Q8_0. A block with a number that isn't finite decodes to NaN.
    ///
    /// # Panics
    /// If `x` doesn't have 32 numbers for each block.
    pub fn to_q8_0(&self, out: &mut [quant::Q8_0], x: &[f32]) {
        assert_eq!(out.len() * QK, x.len(), "operands of different length");
        (self.to_q8_0)(ToQ8_0 { out, x });
    }
}

impl Op for MatMul<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        match self.dtype {
            DType::F32 => s.run(FloatMatMul::<F32>(self.dense(), PhantomData)),
            DType::F16 => s.run(FloatMatMul::<F16>(self.dense(), PhantomData)),
            DType::BF16 => s.run(FloatMatMul::<Bf16>(self.dense(), PhantomData)),
            dtype => with_format!(dtype, F => s.run(QuantMatMul::<F>(self.quantized(), PhantomData))),
        }
    }
}

impl<'a> MatMul<'a> {
    fn dense(self) -> DenseMatMul<'a> {
        DenseMatMul {
            weights: self.weights,
            k: self.k,
            rows: self.rows,
            tokens: self.tokens,
            x: self.x.cast(),
            out: self.out,
            stride: self.stride,
        }
    }

    fn quantized(self) -> matmul::MatMul<'a> {
        matmul::MatMul {
            weights: self.weights,
            packed: self.packed,
            rows: self.rows,
            layout: QuantLayout::new(self.tokens, self.k),
            tokens: self.tokens,
            acts: self.x.cast_mut(),
            out: self.out,
            stride: self.stride,
            scratch: self.scratch,
        }
    }
}

/// An attention kernel on keys and values of the type named.
struct ByKvType<T>(DType, T);

impl Op for ByKvType<Attend<'_, F16>> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Attend { a, kv_head, tokens, scratch, .. } = self.1;
        match self.0 {
            DType::F32 => s.run(Attend::<F32> { a, kv_head, tokens, scratch, cached: PhantomData }),
            DType::Q8_0 => s.run(Attend::<quant::Q8_0> { a, kv_head, tokens, scratch, cached: PhantomData }),
            _ => s.run(Attend::<F16> { a, kv_head, tokens, scratch, cached: PhantomData }),
        }
    }
}

impl Op for ByKvType<AttendChunks<'_, F16>> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let AttendChunks { a, kv_head, token, chunks, out, scratch, .. } = self.1;
        match self.0 {
            DType::F32 => {
                s.run(AttendChunks::<F32> { a, kv_head, token, chunks, out, scratch, cached: PhantomData });
            }
            DType::Q8_0 => {
                s.run(AttendChunks::<quant::Q8_0> {
                    a,
                    kv_head,
                    token,
                    chunks,
                    out,
                    scratch,
                    cached: PhantomData,
                });
            }
            _ => s.run(AttendChunks::<F16> { a, kv_head, token, chunks, out, scratch, cached: PhantomData }),
        }
    }
}
