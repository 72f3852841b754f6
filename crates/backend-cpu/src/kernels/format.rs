//! How the weights of each quantized format are read: sixteen rows at a time, straight from GGUF blocks.
//!
//! This is all that a kernel knows of a format. Layouts are those of the block structs in `minfer-tensor`.
#![allow(unsafe_code, reason = "pointer loads within a weight block")]

use super::simd::{Rows, Simd};

/// A quantized format.
pub(crate) trait Format: Copy {
    /// Bytes of a block.
    const BYTES: usize;
    /// Groups of 32 weights in a block.
    const GROUPS: usize;
    /// What the unpacked integers stand for.
    type Formula: Formula;
    /// The integer that stands for zero.
    const ZERO: i32 = 0;
    /// Scales of one block of sixteen rows.
    type Head<S: Simd>: Copy;

    /// Reads the scales.
    ///
    /// # Safety
    /// `block` at each of `rows` must be a readable block.
    unsafe fn head<S: Simd>(s: S, block: *const u8, rows: &Rows) -> Self::Head<S>;

    /// The factors of a group, as [`Form`] lists them.
    fn factors<S: Simd>(s: S, head: &Self::Head<S>, group: usize) -> [S::F; 3];

    /// The integers of a group of two rows, in order.
    ///
    /// # Safety
    /// `a` and `b` must be readable blocks.
    unsafe fn unpack<S: Simd>(s: S, a: *const u8, b: *const u8, group: usize) -> S::Bytes;
}

/// What a weight is, from the unpacked integer `q` and the factors `f` of its group.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// `f[0] * (q - zero)`.
    Zero,
    /// `f[0] * q` with a signed `q`.
    Signed,
    /// `f[0] * q + f[1]`.
    Min,
    /// `f[0] * f[1] * (q - zero)` in the first half of the group, `f[2]` in the second; both are integers.
    Halves,
}

/// A [`Form`] as a type: kernels on expanded weights are compiled for forms rather than formats.
pub(crate) trait Formula: Copy {
    /// The form.
    const FORM: Form;
}

macro_rules! formula {
    ($name:ident) => {
        #[doc = concat!("[`Form::", stringify!($name), "`].")]
        #[derive(Clone, Copy)]
        pub(crate) struct $name;
        impl Formula for $name {
            const FORM: Form = Form::$name;
        }
    };
}
formula!(Zero);
formula!(Signed);
formula!(Min);
formula!(Halves);

/// `[d, ...]` in the first bytes of a block.
#[inline(always)]
fn scale_only<S: Simd>(s: S, head: S::I) -> [S::F; 3] {
    [s.half_to_f32(head), s.splat(0.0), s.splat(0.0)]
}

/// `[d, m, ...]` in the first bytes of a block.
#[inline(always)]
fn scale_and_min<S: Simd>(s: S, head: S::I) -> [S::F; 3] {
    [s.half_to_f32(head), s.half_to_f32(s.int_shr(head, 16)), s.splat(0.0)]
}

/// The formats with 32 weights a block; `$head` reads the factors and `$unpack` the integers.
macro_rules! simple_format {
    ($(#[$doc:meta])* $name:ident, $bytes:literal, $formula:ident, $zero:literal, $factors:ident, |$s:ident, $a:ident, $b:ident| $unpack:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(crate) struct $name;

        impl Format for $name {
            const BYTES: usize = $bytes;
            const GROUPS: usize = 1;
            type Formula = $formula;
            const ZERO: i32 = $zero;
            type Head<S: Simd> = S::I;

            #[inline(always)]
            unsafe fn head<S: Simd>(s: S, block: *const u8, rows: &Rows) -> S::I {
                // SAFETY: the caller's promise; a block has more than four bytes.
                unsafe { s.gather(block, rows) }
            }
            #[inline(always)]
            fn factors<S: Simd>(s: S, head: &S::I, _: usize) -> [S::F; 3] {
                $factors(s, *head)
            }
            #[inline(always)]
            unsafe fn unpack<S: Simd>($s: S, $a: *const u8, $b: *const u8, _: usize) -> S::Bytes {
                // SAFETY: the caller's promise; the offsets stay within a block.
                unsafe { $unpack }
            }
        }
    };
}

simple_format!(
    /// `d: f16, 16 x two nibbles`: `d * (q - 8)`.
    Q4_0, 18, Zero, 8, scale_only, |s, a, b| s.load_nibbles(a.add(2), b.add(2))
);
simple_format!(
    /// `d, m: f16, 16 x two nibbles`: `d * q + m`.
    Q4_1, 20, Min, 0, scale_and_min, |s, a, b| s.load_nibbles(a.add(4), b.add(4))
);
simple_format!(
    /// `d: f16, 32 high bits, 16 x two nibbles`: `d * (q - 16)`.
    Q5_0, 22, Zero, 16, scale_only,
    |s, a, b| s.or(s.load_nibbles(a.add(6), b.add(6)), s.load_bits(a.add(2), b.add(2), 16))
);
simple_format!(
    /// `d, m: f16, 32 high bits, 16 x two nibbles`: `d * q + m`.
    Q5_1, 24, Min, 0, scale_and_min,
    |s, a, b| s.or(s.load_nibbles(a.add(8), b.add(8)), s.load_bits(a.add(4), b.add(4), 16))
);
simple_format!(
    /// `d: f16, 32 x i8`: `d * q`.
    Q8_0, 34, Signed, 0, scale_only, |s, a, b| s.signed(s.load_pair(a.add(2), b.add(2)))
);

/// In each byte: the low nibble of `low`, below the top two bits of `high`.
#[inline(always)]
fn join_bits<S: Simd>(s: S, low: S::I, high: S::I) -> S::I {
    let top = s.int_and(s.int_shr(high, 6), 0x0303_0303);
    s.int_or(s.int_and(low, 0x0f0f_0f0f), s.int_shl(top, 4))
}

/// Scales of sixteen superblocks with 6-bit scales and minima, four groups to a lane.
#[derive(Clone, Copy)]
pub(crate) struct KHead<S: Simd> {
    d: S::F,
    minus_dmin: S::F,
    scales: [S::I; 2],
    mins: [S::I; 2],
}

impl<S: Simd> KHead<S> {
    /// Reads `d, dmin: f16` and the twelve bytes that hold eight 6-bit scales and minima.
    ///
    /// # Safety
    /// `block` at each of `rows` must be readable for 16 bytes.
    #[inline(always)]
    unsafe fn read(s: S, block: *const u8, rows: &Rows) -> Self {
        // SAFETY: the caller's promise.
        let (dd, low, mid, high) = unsafe {
            let (dd, low) = (s.gather(block, rows), s.gather(block.add(4), rows));
            (dd, low, s.gather(block.add(8), rows), s.gather(block.add(12), rows))
        };
        Self {
            d: s.half_to_f32(dd),
            minus_dmin: s.mul(s.half_to_f32(s.int_shr(dd, 16)), s.splat(-1.0)),
            scales: [s.int_and(low, 0x3f3f_3f3f), join_bits(s, high, low)],
            mins: [s.int_and(mid, 0x3f3f_3f3f), join_bits(s, s.int_shr(high, 4), mid)],
        }
    }

    #[inline(always)]
    fn factors(&self, s: S, group: usize) -> [S::F; 3] {
        let shift = group as u32 % 4 * 8;
        let scale = s.int_to_f32(s.int_and(s.int_shr(self.scales[group / 4], shift), 0xff));
        let min = s.int_to_f32(s.int_and(s.int_shr(self.mins[group / 4], shift), 0xff));
        [s.mul(self.d, scale), s.mul(self.minus_dmin, min), s.splat(0.0)]
    }
}

/// 256 weights: `d * scale * q - dmin * min`, with 4-bit `q`: 32 bytes hold two groups.
#[derive(Clone, Copy)]
pub(crate) struct Q4K;

impl Format for Q4K {
    const BYTES: usize = 144;
    const GROUPS: usize = 8;
    type Formula = Min;
    type Head<S: Simd> = KHead<S>;

    #[inline(always)]
    unsafe fn head<S: Simd>(s: S, block: *const u8, rows: &Rows) -> KHead<S> {
        // SAFETY: the caller's promise.
        unsafe { KHead::read(s, block, rows) }
    }
    #[inline(always)]
    fn factors<S: Simd>(s: S, head: &KHead<S>, group: usize) -> [S::F; 3] {
        head.factors(s, group)
    }
    #[inline(always)]
    unsafe fn unpack<S: Simd>(s: S, a: *const u8, b: *const u8, group: usize) -> S::Bytes {
        let at = 16 + group / 2 * 32;
        // SAFETY: the caller's promise; `at + 32 <= 144`.
        let v = unsafe { s.load_pair(a.add(at), b.add(at)) };
        s.shift_mask(v, group as i32 % 2 * 4, 15)
    }
}

/// 256 weights: like [`Q4K`] with a fifth bit, bit `group` of 32 bytes.
#[derive(Clone, Copy)]
pub(crate) struct Q5K;

impl Format for Q5K {
    const BYTES: usize = 176;
    const GROUPS: usize = 8;
    type Formula = Min;
    type Head<S: Simd> = KHead<S>;

    #[inline(always)]
    unsafe fn head<S: Simd>(s: S, block: *const u8, rows: &Rows) -> KHead<S> {
        // SAFETY: the caller's promise.
        unsafe { KHead::read(s, block, rows) }
    }
    #[inline(always)]
    fn factors<S: Simd>(s: S, head: &KHead<S>, group: usize) -> [S::F; 3] {
        head.factors(s, group)
    }
    #[inline(always)]
    unsafe fn unpack<S: Simd>(s: S, a: *const u8, b: *const u8, group: usize) -> S::Bytes {
        let at = 48 + group / 2 * 32;
        // SAFETY: the caller's promise; `at + 32 <= 176`.
        let (low, high) = unsafe { (s.load_pair(a.add(at), b.add(at)), s.load_pair(a.add(16), b.add(16))) };
        let low = s.shift_mask(low, group as i32 % 2 * 4, 15);
        s.or(low, s.shift_mask(high, group as i32 - 4, 16))
    }
}

/// 256 weights: `d * scale * (q - 32)` with an 8-bit scale per 16 and 6-bit `q`: four bits in `ql`, two in `qh`.
#[derive(Clone, Copy)]
pub(crate) struct Q6K;

impl Format for Q6K {
    const BYTES: usize = 210;
    const GROUPS: usize = 8;
    type Formula = Halves;
    const ZERO: i32 = 32;
    /// `d`, and four lanes of four scales.
    type Head<S: Simd> = (S::F, [S::I; 4]);

    #[inline(always)]
    unsafe fn head<S: Simd>(s: S, block: *const u8, rows: &Rows) -> Self::Head<S> {
        // SAFETY: the caller's promise; the block's last four bytes end with `d`.
        unsafe {
            let at = block.add(192);
            let (first, second) = (s.gather(at, rows), s.gather(at.add(4), rows));
            let scales = [first, second, s.gather(at.add(8), rows), s.gather(at.add(12), rows)];
            (s.half_to_f32(s.int_shr(s.gather(block.add(206), rows), 16)), scales)
        }
    }
    #[inline(always)]
    fn factors<S: Simd>(s: S, head: &Self::Head<S>, group: usize) -> [S::F; 3] {
        let (scales, shift) = (head.1[group / 2], group as u32 % 2 * 16);
        let first = s.int_sar(s.int_shl(scales, 24 - shift), 24);
        let second = s.int_sar(s.int_shl(scales, 16 - shift), 24);
        [head.0, s.int_to_f32(first), s.int_to_f32(second)]
    }
    #[inline(always)]
    unsafe fn unpack<S: Simd>(s: S, a: *const u8, b: *const u8, group: usize) -> S::Bytes {
        let (half, plane) = (group / 4, group % 4);
        let (low, high) = (half * 64 + plane % 2 * 32, 128 + half * 32);
        // SAFETY: the caller's promise; both ranges lie within the first 192 bytes.
        let (low, high) =
            unsafe { (s.load_pair(a.add(low), b.add(low)), s.load_pair(a.add(high), b.add(high))) };
        let low = s.shift_mask(low, plane as i32 / 2 * 4, 15);
        s.or(low, s.shift_mask(high, 2 * plane as i32 - 4, 0x30))
    }
}
