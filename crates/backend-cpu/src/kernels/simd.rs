//! The narrow interface between the kernels and an instruction set.
//!
//! A kernel is written once over [`Simd`], sixteen lanes wide; an implementation is a capability token, so
//! holding one proves that the processor has the instructions. Every method is exact or correctly rounded,
//! therefore all implementations give the same bits (except the payload of a NaN).
#![allow(unsafe_code, reason = "pointer loads under a stated contract")]

/// Lanes of a vector: f32 or i32.
pub(crate) const LANES: usize = 16;

/// Which two weight rows of a panel of sixteen share a [`Simd::Bytes`] vector.
pub(crate) const PAIRS: [(usize, usize); 8] =
    [(0, 4), (1, 5), (2, 6), (3, 7), (8, 12), (9, 13), (10, 14), (11, 15)];

/// Byte offsets of sixteen weight rows from the first. Rows past the last repeat it.
#[derive(Clone, Copy)]
pub(crate) struct Rows {
    /// Offset of each row.
    pub(crate) at: [usize; LANES],
    /// The same as lanes of an index vector.
    pub(crate) index: [i32; LANES],
}

impl Rows {
    /// `count` rows (1 to 16), each `bytes` long.
    pub(crate) fn new(bytes: usize, count: usize) -> Self {
        let at: [usize; LANES] = std::array::from_fn(|r| r.min(count - 1) * bytes);
        Self { at, index: at.map(|a| a as i32) }
    }
}

/// A kernel with its arguments, compiled once per instruction set by [`Simd::run`].
pub(crate) trait Op {
    /// What it returns.
    type Output;
    /// The kernel; always inlined, so that it is compiled with the instructions of `S`.
    fn run<S: Simd>(self, simd: S) -> Self::Output;
}

/// Sixteen-lane arithmetic. Pointers need no alignment; a load reads exactly the bytes that it names.
#[allow(clippy::missing_safety_doc, reason = "every unsafe method has one contract, stated on the trait")]
pub(crate) trait Simd: Copy {
    /// Sixteen f32.
    type F: Copy;
    /// Sixteen i32, or the bits of sixteen u32.
    type I: Copy;
    /// 64 bytes: 32 weights of two rows, or four consecutive weights of sixteen rows.
    type Bytes: Copy;

    /// What [`Simd::dot_signed`] adds to each weight byte in effect.
    const SIGNED_ZERO: i32;
    /// How many panels and tokens are multiplied with each other at a time: (2, 6) or (1, 4).
    const PANEL_TILE: (usize, usize);
    /// Whether 24 accumulators stay in registers beside their operands, or 4.
    const MANY_REGISTERS: bool;
    /// Accumulator tile of dense products, rows and tokens: (4, 6) or (2, 2).
    const DENSE_TILE: (usize, usize);

    fn splat(self, x: f32) -> Self::F;
    unsafe fn load(self, p: *const f32) -> Self::F;
    unsafe fn store(self, p: *mut f32, v: Self::F);
    /// An f16, sixteen times.
    fn splat_f16(self, bits: u16) -> Self::F;
    /// Sixteen f16.
    unsafe fn load_f16(self, p: *const u16) -> Self::F;
    /// Sixteen signed bytes.
    unsafe fn load_i8(self, p: *const i8) -> Self::F;
    /// Sixteen bf16.
    unsafe fn load_bf16(self, p: *const u16) -> Self::F;
    /// Rounds to nearest even.
    unsafe fn store_f16(self, p: *mut u16, v: Self::F);
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a` where `a > b`, else `b`.
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c`, rounded once.
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// Rows become columns.
    fn transpose(self, rows: &mut [Self::F; LANES]);

    fn int(self, x: i32) -> Self::I;
    fn int_add(self, a: Self::I, b: Self::I) -> Self::I;
    fn int_and(self, a: Self::I, mask: u32) -> Self::I;
    fn int_or(self, a: Self::I, b: Self::I) -> Self::I;
    /// Shifts each lane left.
    fn int_shl(self, a: Self::I, n: u32) -> Self::I;
    /// Shifts each lane right, bringing in zeros.
    fn int_shr(self, a: Self::I, n: u32) -> Self::I;
    /// Shifts each lane right, bringing in the sign.
    fn int_sar(self, a: Self::I, n: u32) -> Self::I;
    fn int_to_f32(self, a: Self::I) -> Self::F;
    /// The same bits, read as f32.
    fn bits_to_f32(self, a: Self::I) -> Self::F;
    /// The low half of each lane, read as f16.
    fn half_to_f32(self, a: Self::I) -> Self::F;
    /// Four bytes, little-endian, at `p` in each row.
    unsafe fn gather(self, p: *const u8, rows: &Rows) -> Self::I;
    /// Sixteen words of four bytes, little-endian.
    unsafe fn load_words(self, p: *const u8) -> Self::I;
    /// Sixteen pairs of bytes, little-endian, each in the low half of a lane.
    unsafe fn load_halves(self, p: *const u8) -> Self::I;

    unsafe fn load_bytes(self, p: *const u8) -> Self::Bytes;
    unsafe fn store_bytes(self, p: *mut u8, v: Self::Bytes);
    /// 32 bytes of each of two rows.
    unsafe fn load_pair(self, a: *const u8, b: *const u8) -> Self::Bytes;
    /// 16 bytes of each of two rows: the sixteen low nibbles, then the sixteen high ones.
    unsafe fn load_nibbles(self, a: *const u8, b: *const u8) -> Self::Bytes;
    /// 32 bits of each of two rows: a byte is `value` where its bit is set, else 0.
    unsafe fn load_bits(self, a: *const u8, b: *const u8, value: u8) -> Self::Bytes;
    /// 32 bytes, twice.
    unsafe fn splat32(self, p: *const u8) -> Self::Bytes;
    /// 4 bytes, sixteen times.
    unsafe fn splat4(self, p: *const u8) -> Self::Bytes;
    fn or(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes;
    /// `(each byte >> n) & mask`, or `<< -n` where `n` is negative; the mask must be without the bits that a
    /// shift of wider lanes brings in. `n` is -7 to 7.
    fn shift_mask(self, a: Self::Bytes, n: i32, mask: u8) -> Self::Bytes;
    /// Signed weight bytes in the form that [`Simd::dot_signed`] wants.
    fn signed(self, a: Self::Bytes) -> Self::Bytes;

    /// Adds to each lane the product of its four bytes: weights 0 to 127 and activations -127 to 127.
    fn dot(self, acc: Self::I, w: Self::Bytes, a: Self::Bytes) -> Self::I;
    /// The same for weights from [`Simd::signed`], each counted as if [`Simd::SIGNED_ZERO`] larger.
    fn dot_signed(self, acc: Self::I, w: Self::Bytes, a: Self::Bytes) -> Self::I;
    /// Row sums of eight vectors that hold sixteen rows as [`PAIRS`]: over a row's first four lanes and its
    /// last four.
    fn sum_halves(self, v: [Self::I; 8]) -> [Self::I; 2];
    /// Eight vectors that hold sixteen rows as [`PAIRS`] become vectors of four consecutive bytes a row.
    fn transpose_bytes(self, v: [Self::Bytes; 8]) -> [Self::Bytes; 8];

    /// Runs `op` compiled for these instructions, as a function of its own.
    fn run<O: Op>(self, op: O) -> O::Output;
    /// Hints that the line at `p`, which need not be readable, will be needed.
    fn prefetch(self, p: *const u8);

    /// The values of an array.
    #[inline(always)]
    fn load_array(self, x: &[f32; LANES]) -> Self::F {
        // SAFETY: `x` holds sixteen f32.
        unsafe { self.load(x.as_ptr()) }
    }
    /// The lanes as an array.
    #[inline(always)]
    fn lanes(self, v: Self::F) -> [f32; LANES] {
        let mut x = [0.0; LANES];
        // SAFETY: `x` holds sixteen f32.
        unsafe { self.store(x.as_mut_ptr(), v) };
        x
    }
    /// Sum of the lanes as a fixed tree: halves are added onto each other, 8, 4, 2, 1.
    fn sum(self, v: Self::F) -> f32 {
        sum_tree(self.lanes(v))
    }
}

/// The sum that [`Simd::sum`] computes.
#[inline(always)]
pub(crate) fn sum_tree(mut x: [f32; LANES]) -> f32 {
    for half in [8, 4, 2, 1] {
        for i in 0..half {
            x[i] += x[i + half];
        }
    }
    x[0]
}

/// Methods of a token that are one expression of intrinsics.
macro_rules! methods {
    ($(fn $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty { $body:expr })*) => {$(
        #[inline(always)]
        fn $name(self, $($arg: $ty),*) -> $ret {
            // SAFETY: the token proves that the processor has the instructions.
            unsafe { $body }
        }
    )*};
}

/// Unsafe methods that are one expression of intrinsics and memory accesses.
macro_rules! memory_methods {
    ($(fn $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty { $body:expr })*) => {$(
        #[inline(always)]
        unsafe fn $name(self, $($arg: $ty),*) -> $ret {
            // SAFETY: the token proves the instructions; the caller promises the memory.
            unsafe { $body }
        }
    )*};
}
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(super) use {memory_methods, methods};
