//! How the weights of each quantized format are read: sixteen rows at a time, straight from GGUF blocks.
//!
//! This is all that a kernel knows of a format. Layouts are those of the block structs in `minfer-tensor`.
#![allow(unsafe_code, reason = "pointer loads within a weight block")]
#![allow(clippy::single_range_in_vec_init, reason = "the order of most formats is one part")]

use super::simd::Simd;
use std::ops::Range;

/// The same bytes of a block in each of sixteen rows, however the rows are stored.
pub(crate) trait Blocks<S: Simd>: Copy {
    /// Two bytes, in the low half of a lane; the high half may hold anything.
    ///
    /// # Safety
    /// The sixteen blocks must be readable, and the bytes inside of them.
    unsafe fn half(&self, s: S, at: usize) -> S::I;

    /// Four bytes, little-endian.
    ///
    /// # Safety
    /// As for [`Blocks::half`].
    unsafe fn word(&self, s: S, at: usize) -> S::I;
}

/// A quantized format.
pub(crate) trait Format: Copy {
    /// Bytes of a block.
    const BYTES: usize;
    /// Groups of 32 weights in a block.
    const GROUPS: usize;
    /// The parts of a block in the order in which a [`pack`](super::pack)ed panel holds them; each is two bytes or whole
    /// words of four.
    const ORDER: &'static [Range<usize>];
    /// Where a block has a word with one bit for each weight, which a panel holds as eight masks of four bits a row.
    const BITS: Option<usize> = None;
    /// What the unpacked integers stand for.
    type Formula: Formula;
    /// The integer that stands for zero.
    const ZERO: i32 = 0;
    /// Scales of one block of sixteen rows.
    type Head<S: Simd>: Copy;

    /// Reads the scales.
    ///
    /// # Safety
    /// The blocks must be readable.
    unsafe fn head<S: Simd>(s: S, blocks: impl Blocks<S>) -> Self::Head<S>;

    /// The factors of a group, as [`Form`] lists them.
    fn factors<S: Simd>(s: S, head: &Self::Head<S>, group: usize) -> [S::F; 3];

    /// The integers of a group of two rows, in order.
    ///
    /// # Safety
    /// `a` and `b` must be readable blocks.
    unsafe fn unpack<S: Simd>(s: S, a: *const u8, b: *const u8, group: usize) -> S::Bytes;

    /// The integers `4 * j..4 * j + 4` of a group of sixteen rows, from the block of a panel.
    ///
    /// # Safety
    /// `panel` must be readable for sixteen blocks.
    unsafe fn column<S: Simd>(s: S, panel: *const u8, group: usize, j: usize) -> S::Bytes;
}

/// Column `j` of groups whose sixteen bytes a row hold the first half in their low nibbles, the second in the high ones.
///
/// # Safety
/// `words` must be readable for four words of sixteen rows.
#[inline(always)]
unsafe fn nibbles<S: Simd>(s: S, words: *const u8, j: usize) -> S::Bytes {
    // SAFETY: the caller's promise.
    let bytes = unsafe { s.load_bytes(words.add(j % 4 * 64)) };
    s.shift_mask(bytes, j as i32 / 4 * 4, 15)
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
    ($(#[$doc:meta])* $name:ident, $bytes:literal as $order:expr, $bits:expr; $formula:ident, $zero:literal, $read:ident, $factors:ident,
        |$s:ident, $a:ident, $b:ident| $unpack:expr, |$t:ident, $panel:ident, $j:ident| $column:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(crate) struct $name;

        impl Format for $name {
            const BYTES: usize = $bytes;
            const GROUPS: usize = 1;
            const ORDER: &'static [Range<usize>] = &$order;
            const BITS: Option<usize> = $bits;
            type Formula = $formula;
            const ZERO: i32 = $zero;
            type Head<S: Simd> = S::I;

            #[inline(always)]
            unsafe fn head<S: Simd>(s: S, blocks: impl Blocks<S>) -> S::I {
                // SAFETY: the caller's promise.
                unsafe { blocks.$read(s, 0) }
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
            #[inline(always)]
            unsafe fn column<S: Simd>($t: S, $panel: *const u8, _: usize, $j: usize) -> S::Bytes {
                // SAFETY: the caller's promise; the offsets stay within sixteen blocks.
                unsafe { $column }
            }
        }
    };
}

simple_format!(
    /// `d: f16, 16 x two nibbles`: `d * (q - 8)`.
    Q4_0, 18 as [0..2, 2..18], None; Zero, 8, half, scale_only,
    |s, a, b| s.load_nibbles(a.add(2), b.add(2)),
    |s, p, j| nibbles(s, p.add(32), j)
);
simple_format!(
    /// `d, m: f16, 16 x two nibbles`: `d * q + m`.
    Q4_1, 20 as [0..20], None; Min, 0, word, scale_and_min,
    |s, a, b| s.load_nibbles(a.add(4), b.add(4)),
    |s, p, j| nibbles(s, p.add(64), j)
);
simple_format!(
    /// `d: f16, 32 high bits, 16 x two nibbles`: `d * (q - 16)`.
    Q5_0, 22 as [0..2, 2..22], Some(2); Zero, 16, half, scale_only,
    |s, a, b| s.or(s.load_nibbles(a.add(6), b.add(6)), s.load_bits(a.add(2), b.add(2), 16)),
    |s, p, j| s.or(nibbles(s, p.add(96), j), s.load_bits(p.add(32 + 8 * j), p.add(36 + 8 * j), 16))
);
simple_format!(
    /// `d, m: f16, 32 high bits, 16 x two nibbles`: `d * q + m`.
    Q5_1, 24 as [0..24], Some(4); Min, 0, word, scale_and_min,
    |s, a, b| s.or(s.load_nibbles(a.add(8), b.add(8)), s.load_bits(a.add(4), b.add(4), 16)),
    |s, p, j| s.or(nibbles(s, p.add(128), j), s.load_bits(p.add(64 + 8 * j), p.add(68 + 8 * j), 16))
);
simple_format!(
    /// `d: f16, 32 x i8`: `d * q`.
    Q8_0, 34 as [0..2, 2..34], None; Signed, 0, half, scale_only,
    |s, a, b| s.signed(s.load_pair(a.add(2), b.add(2))),
    |s, p, j| s.signed(s.load_bytes(p.add(32 + 64 * j)))
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
    /// The blocks must be readable for 16 bytes.
    #[inline(always)]
    unsafe fn read(s: S, blocks: impl Blocks<S>) -> Self {
        // SAFETY: the caller's promise.
        let (dd, low, mid, high) =
            unsafe { (blocks.word(s, 0), blocks.word(s, 4), blocks.word(s, 8), blocks.word(s, 12)) };
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
    const ORDER: &'static [Range<usize>] = &[0..144];
    type Formula = Min;
    type Head<S: Simd> = KHead<S>;

    #[inline(always)]
    unsafe fn head<S: Simd>(s: S, blocks: impl Blocks<S>) -> KHead<S> {
        // SAFETY: the caller's promise.
        unsafe { KHead::read(s, blocks) }
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
    #[inline(always)]
    unsafe fn column<S: Simd>(s: S, panel: *const u8, group: usize, j: usize) -> S::Bytes {
        // SAFETY: the caller's promise; behind 16 bytes a row there are four times 32.
        let v = unsafe { s.load_bytes(panel.add(256 + group / 2 * 512 + 64 * j)) };
        s.shift_mask(v, group as i32 % 2 * 4, 15)
    }
}

/// 256 weights: like [`Q4K`] with a fifth bit, bit `group` of 32 bytes.
#[derive(Clone, Copy)]
pub(crate) struct Q5K;

impl Format for Q5K {
    const BYTES: usize = 176;
    const GROUPS: usize = 8;
    const ORDER: &'static [Range<usize>] = &[0..176];
    type Formula = Min;
    type Head<S: Simd> = KHead<S>;

    #[inline(always)]
    unsafe fn head<S: Simd>(s: S, blocks: impl Blocks<S>) -> KHead<S> {
        // SAFETY: the caller's promise.
        unsafe { KHead::read(s, blocks) }
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
    #[inline(always)]
    unsafe fn column<S: Simd>(s: S, panel: *const u8, group: usize, j: usize) -> S::Bytes {
        let at = 64 * j;
        // SAFETY: the caller's promise; behind 16 bytes a row there are 32 of upper bits and four times 32.
        let (low, high) = unsafe {
            (s.load_bytes(panel.add(768 + group / 2 * 512 + at)), s.load_bytes(panel.add(256 + at)))
        };
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
    /// `d` and the scales, and for each half of the block the upper bits before the lower ones.
    const ORDER: &'static [Range<usize>] = &[208..210, 192..208, 128..160, 0..64, 160..192, 64..128];
    type Formula = Halves;
    const ZERO: i32 = 32;
    /// `d`, and four lanes of four scales.
    type Head<S: Simd> = (S::F, [S::I; 4]);

    #[inline(always)]
    unsafe fn head<S: Simd>(s: S, blocks: impl Blocks<S>) -> Self::Head<S> {
        // SAFETY: the caller's promise.
        unsafe {
            let (first, second) = (blocks.word(s, 192), blocks.word(s, 196));
            let scales = [first, second, blocks.word(s, 200), blocks.word(s, 204)];
            (s.half_to_f32(blocks.half(s, 208)), scales)
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
    #[inline(always)]
    unsafe fn column<S: Simd>(s: S, panel: *const u8, group: usize, j: usize) -> S::Bytes {
        let (half, plane) = (group / 4, group % 4);
        let (high, low) = (288 + half * 1536 + 64 * j, 800 + half * 1536 + plane % 2 * 512 + 64 * j);
        // SAFETY: the caller's promise; behind 18 bytes a row there are twice 32 of upper bits and 64 of lower ones.
        let (low, high) = unsafe { (s.load_bytes(panel.add(low)), s.load_bytes(panel.add(high))) };
        let low = s.shift_mask(low, plane as i32 / 2 * 4, 15);
        s.or(low, s.shift_mask(high, 2 * plane as i32 - 4, 0x30))
    }
}
