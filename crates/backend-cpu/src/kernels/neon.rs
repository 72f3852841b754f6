//! NEON with dot products: a vector is four registers.
//!
//! Products of matrices (i8mm) aren't used: they want eight consecutive weights of two rows, our panels have four.
#![allow(unsafe_code, reason = "intrinsics behind a capability token")]

use super::simd::{LANES, Op, Rows, Simd, memory_methods, methods};
use super::{Kernels, kernel_table};
use std::arch::aarch64::*;
use std::arch::{asm, is_aarch64_feature_detected};

/// Proof that the processor has the instructions that [`Simd::run`] enables.
#[derive(Clone, Copy)]
pub(crate) struct Neon(());

impl Neon {
    /// The token, if this processor has all of the instructions.
    fn new() -> Option<Self> {
        let found = is_aarch64_feature_detected!("neon") && is_aarch64_feature_detected!("dotprod");
        found.then_some(Self(()))
    }
}

/// The table, if this processor can run it.
pub(crate) fn kernels() -> Option<&'static Kernels> {
    static TABLE: Kernels = kernel_table!("neon-dotprod", Neon(()));
    Neon::new().map(|_| &TABLE)
}

type F = [float32x4_t; 4];
type I = [int32x4_t; 4];
type Bytes = [uint8x16_t; 4];

/// An expression for each of the four registers of a vector. No closure, which might not be compiled for the instructions
/// of its caller.
macro_rules! each {
    ($i:ident => $body:expr) => {
        [
            {
                let $i = 0;
                $body
            },
            {
                let $i = 1;
                $body
            },
            {
                let $i = 2;
                $body
            },
            {
                let $i = 3;
                $body
            },
        ]
    };
}

impl Simd for Neon {
    type F = F;
    type I = I;
    type Bytes = Bytes;
    const SIGNED_ZERO: i32 = 0;
    const PANEL_TILE: (usize, usize) = (1, 4);
    const MANY_REGISTERS: bool = false;
    const DENSE_TILE: (usize, usize) = (2, 2);

    memory_methods! {
        fn load(p: *const f32) -> F { each!(i => vld1q_f32(p.add(4 * i))) }
        fn store(p: *mut f32, v: F) -> () {{ each!(i => vst1q_f32(p.add(4 * i), v[i])); }}
        fn load_f16(p: *const u16) -> F { each!(i => half_to_f32(vld1_u16(p.add(4 * i)))) }
        fn load_i8(p: *const i8) -> F {{
            let bytes = vld1q_s8(p);
            let (low, high) = (vmovl_s8(vget_low_s8(bytes)), vmovl_high_s8(bytes));
            [
                vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))),
                vcvtq_f32_s32(vmovl_high_s16(low)),
                vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))),
                vcvtq_f32_s32(vmovl_high_s16(high)),
            ]
        }}
        fn load_bf16(p: *const u16) -> F {
            each!(i => vreinterpretq_f32_u32(vshll_n_u16::<16>(vld1_u16(p.add(4 * i)))))
        }
        fn store_f16(p: *mut u16, v: F) -> () {{
            each!(i => vst1_u16(p.add(4 * i), vreinterpret_u16_f16(vcvt_f16_f32(v[i]))));
        }}
        fn gather(p: *const u8, rows: &Rows) -> I { each!(i => four_words(p, rows, 4 * i)) }
        fn load_words(p: *const u8) -> I { each!(i => vreinterpretq_s32_u8(vld1q_u8(p.add(16 * i)))) }
        fn load_halves(p: *const u8) -> I {
            each!(i => vreinterpretq_s32_u32(vmovl_u16(vreinterpret_u16_u8(vld1_u8(p.add(8 * i))))))
        }
        fn load_bytes(p: *const u8) -> Bytes { each!(i => vld1q_u8(p.add(16 * i))) }
        fn store_bytes(p: *mut u8, v: Bytes) -> () {{ each!(i => vst1q_u8(p.add(16 * i), v[i])); }}
        fn load_pair(a: *const u8, b: *const u8) -> Bytes {
            [vld1q_u8(a), vld1q_u8(a.add(16)), vld1q_u8(b), vld1q_u8(b.add(16))]
        }
        fn load_nibbles(a: *const u8, b: *const u8) -> Bytes {{
            let (a, b, low) = (vld1q_u8(a), vld1q_u8(b), vdupq_n_u8(15));
            [vandq_u8(a, low), vshrq_n_u8::<4>(a), vandq_u8(b, low), vshrq_n_u8::<4>(b)]
        }}
        fn load_bits(a: *const u8, b: *const u8, value: u8) -> Bytes {
            [bits(a, value), bits(a.add(2), value), bits(b, value), bits(b.add(2), value)]
        }
        fn splat32(p: *const u8) -> Bytes {{
            let (first, second) = (vld1q_u8(p), vld1q_u8(p.add(16)));
            [first, second, first, second]
        }}
        fn splat4(p: *const u8) -> Bytes {
            [vreinterpretq_u8_u32(vdupq_n_u32(p.cast::<u32>().read_unaligned())); 4]
        }
    }

    methods! {
        fn splat(x: f32) -> F { [vdupq_n_f32(x); 4] }
        fn splat_f16(bits: u16) -> F { [half_to_f32(vdup_n_u16(bits)); 4] }
        fn add(a: F, b: F) -> F { each!(i => vaddq_f32(a[i], b[i])) }
        // Not `fmax`, which orders zeros and gives NaN for any NaN.
        fn max(a: F, b: F) -> F { each!(i => vbslq_f32(vcgtq_f32(a[i], b[i]), a[i], b[i])) }
        fn mul(a: F, b: F) -> F { each!(i => vmulq_f32(a[i], b[i])) }
        fn fma(a: F, b: F, c: F) -> F { each!(i => vfmaq_f32(c[i], a[i], b[i])) }
        fn int(x: i32) -> I { [vdupq_n_s32(x); 4] }
        fn int_add(a: I, b: I) -> I { each!(i => vaddq_s32(a[i], b[i])) }
        fn int_and(a: I, mask: u32) -> I { each!(i => vandq_s32(a[i], vdupq_n_s32(mask as i32))) }
        fn int_or(a: I, b: I) -> I { each!(i => vorrq_s32(a[i], b[i])) }
        fn int_shl(a: I, n: u32) -> I { each!(i => vshlq_s32(a[i], vdupq_n_s32(n as i32))) }
        fn int_shr(a: I, n: u32) -> I {
            each!(i => vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(a[i]), vdupq_n_s32(-(n as i32)))))
        }
        fn int_sar(a: I, n: u32) -> I { each!(i => vshlq_s32(a[i], vdupq_n_s32(-(n as i32)))) }
        fn int_to_f32(a: I) -> F { each!(i => vcvtq_f32_s32(a[i])) }
        fn bits_to_f32(a: I) -> F { each!(i => vreinterpretq_f32_s32(a[i])) }
        fn half_to_f32(a: I) -> F { each!(i => half_to_f32(vmovn_u32(vreinterpretq_u32_s32(a[i])))) }
        fn or(a: Bytes, b: Bytes) -> Bytes { each!(i => vorrq_u8(a[i], b[i])) }
        fn shift_mask(a: Bytes, n: i32, mask: u8) -> Bytes {
            each!(i => vandq_u8(vshlq_u8(a[i], vdupq_n_s8(-n as i8)), vdupq_n_u8(mask)))
        }
        fn dot(acc: I, w: Bytes, a: Bytes) -> I { each!(i => dot(acc[i], w[i], a[i])) }
        fn dot_signed(acc: I, w: Bytes, a: Bytes) -> I { each!(i => dot(acc[i], w[i], a[i])) }
        fn sum_halves(v: [I; 8]) -> [I; 2] {
            [each!(q => add_lanes(quad(&v, q, 0))), each!(q => add_lanes(quad(&v, q, 1)))]
        }
        fn transpose_bytes(v: [Bytes; 8]) -> [Bytes; 8] {{
            let first = each!(q => transpose_words(quad(&v, q, 0)));
            let second = each!(q => transpose_words(quad(&v, q, 1)));
            let mut out = v;
            for k in 0..4 {
                out[k] = each!(q => first[q][k]);
                out[4 + k] = each!(q => second[q][k]);
            }
            out
        }}
        fn sum(v: F) -> f32 {{
            let v = vaddq_f32(vaddq_f32(v[0], v[2]), vaddq_f32(v[1], v[3]));
            vpadds_f32(vadd_f32(vget_low_f32(v), vget_high_f32(v)))
        }}
    }

    #[inline(always)]
    fn signed(self, a: Bytes) -> Bytes {
        a
    }

    #[inline(always)]
    fn transpose(self, rows: &mut [F; LANES]) {
        let old = *rows;
        for i in 0..4 {
            for j in 0..4 {
                // SAFETY: the token proves the instructions.
                let square = unsafe { transpose4(each!(r => old[4 * i + r][j])) };
                for (c, &column) in square.iter().enumerate() {
                    rows[4 * j + c][i] = column;
                }
            }
        }
    }

    #[inline(always)]
    fn run<O: Op>(self, op: O) -> O::Output {
        #[target_feature(enable = "neon,dotprod")]
        #[inline(never)]
        fn inner<O: Op>(simd: Neon, op: O) -> O::Output {
            op.run(simd)
        }
        // SAFETY: the token proves the instructions.
        unsafe { inner(self, op) }
    }

    #[inline(always)]
    fn prefetch(self, p: *const u8) {
        // SAFETY: a prefetch never faults and changes nothing.
        unsafe { asm!("prfm pldl2keep, [{}]", in(reg) p, options(nostack, preserves_flags, readonly)) }
    }
}

/// Four products of signed bytes added to each lane. In assembly, since `vdotq_s32` isn't stable.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn dot(mut acc: int32x4_t, w: uint8x16_t, a: uint8x16_t) -> int32x4_t {
    // SAFETY: the instruction touches these registers only.
    unsafe {
        asm!(
            "sdot {acc:v}.4s, {w:v}.16b, {a:v}.16b",
            acc = inout(vreg) acc,
            w = in(vreg) w,
            a = in(vreg) a,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    acc
}

/// Four f16 from their bits.
#[inline]
#[target_feature(enable = "neon")]
fn half_to_f32(bits: uint16x4_t) -> float32x4_t {
    vcvt_f32_f16(vreinterpret_f16_u16(bits))
}

/// Four bytes of each of four rows.
///
/// # Safety
/// `p` must be readable there in the rows from `first` on.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn four_words(p: *const u8, rows: &Rows, first: usize) -> int32x4_t {
    // SAFETY: the caller's promise.
    let words = unsafe { each!(r => p.add(rows.at[first + r]).cast::<i32>().read_unaligned()) };
    let v = vsetq_lane_s32::<1>(words[1], vdupq_n_s32(words[0]));
    vsetq_lane_s32::<3>(words[3], vsetq_lane_s32::<2>(words[2], v))
}

/// `value` in the bytes whose bit is set, of sixteen.
///
/// # Safety
/// `p` must be readable for two bytes.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn bits(p: *const u8, value: u8) -> uint8x16_t {
    // SAFETY: the caller's promise.
    let bytes = unsafe { vcombine_u8(vdup_n_u8(*p), vdup_n_u8(*p.add(1))) };
    let bit = vreinterpretq_u8_u64(vdupq_n_u64(0x8040_2010_0804_0201));
    vandq_u8(vtstq_u8(bytes, bit), vdupq_n_u8(value))
}

/// A half of rows `4 * q..4 * q + 4`, from eight vectors that hold sixteen as [`PAIRS`](super::simd::PAIRS).
#[inline(always)]
fn quad<T: Copy>(v: &[[T; 4]; 8], q: usize, half: usize) -> [T; 4] {
    each!(r => v[q / 2 * 4 + r][q % 2 * 2 + half])
}

/// The sums of four registers' lanes.
#[inline]
#[target_feature(enable = "neon")]
fn add_lanes(v: [int32x4_t; 4]) -> int32x4_t {
    vpaddq_s32(vpaddq_s32(v[0], v[1]), vpaddq_s32(v[2], v[3]))
}

/// Rows become columns.
#[inline]
#[target_feature(enable = "neon")]
fn transpose4(v: [float32x4_t; 4]) -> [float32x4_t; 4] {
    let pairs =
        [vtrn1q_f32(v[0], v[1]), vtrn2q_f32(v[0], v[1]), vtrn1q_f32(v[2], v[3]), vtrn2q_f32(v[2], v[3])];
    let [a, b, c, d] = each!(i => vreinterpretq_f64_f32(pairs[i]));
    let columns = [vtrn1q_f64(a, c), vtrn1q_f64(b, d), vtrn2q_f64(a, c), vtrn2q_f64(b, d)];
    each!(i => vreinterpretq_f32_f64(columns[i]))
}

/// The same, of words of four bytes.
#[inline]
#[target_feature(enable = "neon")]
fn transpose_words(v: [uint8x16_t; 4]) -> [uint8x16_t; 4] {
    let columns = transpose4(each!(i => vreinterpretq_f32_u8(v[i])));
    each!(i => vreinterpretq_u8_f32(columns[i]))
}
