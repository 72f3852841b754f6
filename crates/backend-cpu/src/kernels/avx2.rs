//! AVX2 with FMA and F16C: a vector is two registers.
#![allow(unsafe_code, reason = "intrinsics behind a capability token")]

pub(super) mod vnni;

use super::simd::{LANES, Op, Rows, Simd, memory_methods, methods};
use super::{Kernels, kernel_table};
use std::arch::x86_64::*;
use std::marker::PhantomData;

/// Proof that the processor has the instructions that [`Dot::run`] enables.
#[derive(Clone, Copy)]
pub(crate) struct Avx2<D>(PhantomData<D>);

/// How bytes are multiplied: all in which the levels over AVX2 differ.
pub(crate) trait Dot: Copy {
    /// As [`Simd::SIGNED_ZERO`].
    const SIGNED_ZERO: i32;

    /// One register of [`Simd::signed`].
    ///
    /// # Safety
    /// The processor must have the instructions; so it must for all below.
    unsafe fn signed(a: __m256i) -> __m256i;
    /// One register of [`Simd::dot`].
    unsafe fn dot(acc: __m256i, w: __m256i, a: __m256i) -> __m256i;
    /// One register of [`Simd::dot_signed`].
    unsafe fn dot_signed(acc: __m256i, w: __m256i, a: __m256i) -> __m256i;
    /// [`Simd::run`].
    unsafe fn run<O: Op>(simd: Avx2<Self>, op: O) -> O::Output;
}

/// Whether this processor has the instructions that all levels over AVX2 need.
fn found() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
}

/// The table, if this processor can run it.
pub(crate) fn kernels() -> Option<&'static Kernels> {
    static TABLE: Kernels = kernel_table!("avx2", Avx2::<Pairs>(PhantomData));
    found().then_some(&TABLE)
}

/// Products of pairs as i16, then their sums.
#[derive(Clone, Copy)]
struct Pairs;

impl Dot for Pairs {
    const SIGNED_ZERO: i32 = 0;

    #[inline(always)]
    unsafe fn signed(a: __m256i) -> __m256i {
        a
    }
    #[inline(always)]
    unsafe fn dot(acc: __m256i, w: __m256i, a: __m256i) -> __m256i {
        // SAFETY: the caller's promise. Weights are at most 128, so that no pair overflows.
        unsafe {
            let pairs = _mm256_maddubs_epi16(w, a);
            _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
        }
    }
    #[inline(always)]
    unsafe fn dot_signed(acc: __m256i, w: __m256i, a: __m256i) -> __m256i {
        // SAFETY: the caller's promise.
        unsafe { Self::dot(acc, _mm256_abs_epi8(w), _mm256_sign_epi8(a, w)) }
    }
    #[inline(always)]
    unsafe fn run<O: Op>(simd: Avx2<Self>, op: O) -> O::Output {
        #[target_feature(enable = "avx2,fma,f16c")]
        #[inline(never)]
        fn inner<O: Op>(simd: Avx2<Pairs>, op: O) -> O::Output {
            op.run(simd)
        }
        // SAFETY: the caller's promise.
        unsafe { inner(simd, op) }
    }
}

type F = [__m256; 2];
type I = [__m256i; 2];

impl<D: Dot> Simd for Avx2<D> {
    type F = F;
    type I = I;
    type Bytes = I;
    const SIGNED_ZERO: i32 = D::SIGNED_ZERO;
    const PANEL_TILE: (usize, usize) = (1, 4);
    const MANY_REGISTERS: bool = false;
    const DENSE_TILE: (usize, usize) = (2, 2);

    memory_methods! {
        fn load(p: *const f32) -> F { [_mm256_loadu_ps(p), _mm256_loadu_ps(p.add(8))] }
        fn store(p: *mut f32, v: F) -> () {{
            _mm256_storeu_ps(p, v[0]);
            _mm256_storeu_ps(p.add(8), v[1]);
        }}
        fn load_f16(p: *const u16) -> F {
            [_mm256_cvtph_ps(_mm_loadu_si128(p.cast())), _mm256_cvtph_ps(_mm_loadu_si128(p.add(8).cast()))]
        }
        fn load_i8(p: *const i8) -> F {{
            let bytes = _mm_loadu_si128(p.cast());
            let (low, high) = (_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_srli_si128::<8>(bytes)));
            [_mm256_cvtepi32_ps(low), _mm256_cvtepi32_ps(high)]
        }}
        fn load_bf16(p: *const u16) -> F {{
            let low = _mm256_cvtepu16_epi32(_mm_loadu_si128(p.cast()));
            let high = _mm256_cvtepu16_epi32(_mm_loadu_si128(p.add(8).cast()));
            [_mm256_slli_epi32::<16>(low), _mm256_slli_epi32::<16>(high)].map(|v| _mm256_castsi256_ps(v))
        }}
        fn store_f16(p: *mut u16, v: F) -> () {{
            _mm_storeu_si128(p.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v[0]));
            _mm_storeu_si128(p.add(8).cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v[1]));
        }}
        fn gather(p: *const u8, rows: &Rows) -> I {{
            let at = rows.index.as_ptr();
            let (low, high) = (_mm256_loadu_si256(at.cast()), _mm256_loadu_si256(at.add(8).cast()));
            [_mm256_i32gather_epi32::<1>(p.cast(), low), _mm256_i32gather_epi32::<1>(p.cast(), high)]
        }}
        fn load_words(p: *const u8) -> I {
            [_mm256_loadu_si256(p.cast()), _mm256_loadu_si256(p.add(32).cast())]
        }
        fn load_halves(p: *const u8) -> I {{
            let (low, high) = (_mm_loadu_si128(p.cast()), _mm_loadu_si128(p.add(16).cast()));
            [_mm256_cvtepu16_epi32(low), _mm256_cvtepu16_epi32(high)]
        }}
        fn load_bytes(p: *const u8) -> I {
            [_mm256_loadu_si256(p.cast()), _mm256_loadu_si256(p.add(32).cast())]
        }
        fn store_bytes(p: *mut u8, v: I) -> () {{
            _mm256_storeu_si256(p.cast(), v[0]);
            _mm256_storeu_si256(p.add(32).cast(), v[1]);
        }}
        fn load_pair(a: *const u8, b: *const u8) -> I {
            [_mm256_loadu_si256(a.cast()), _mm256_loadu_si256(b.cast())]
        }
        fn load_nibbles(a: *const u8, b: *const u8) -> I {
            [nibbles(_mm_loadu_si128(a.cast())), nibbles(_mm_loadu_si128(b.cast()))]
        }
        fn load_bits(a: *const u8, b: *const u8, value: u8) -> I {
            [bits(a.cast::<i32>().read_unaligned(), value), bits(b.cast::<i32>().read_unaligned(), value)]
        }
        fn splat32(p: *const u8) -> I { [_mm256_loadu_si256(p.cast()); 2] }
        fn splat4(p: *const u8) -> I { [_mm256_set1_epi32(p.cast::<i32>().read_unaligned()); 2] }
    }

    methods! {
        fn splat(x: f32) -> F { [_mm256_set1_ps(x); 2] }
        fn splat_f16(bits: u16) -> F { [_mm256_cvtph_ps(_mm_set1_epi16(bits as i16)); 2] }
        fn add(a: F, b: F) -> F { [_mm256_add_ps(a[0], b[0]), _mm256_add_ps(a[1], b[1])] }
        fn max(a: F, b: F) -> F { [_mm256_max_ps(a[0], b[0]), _mm256_max_ps(a[1], b[1])] }
        fn mul(a: F, b: F) -> F { [_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1])] }
        fn fma(a: F, b: F, c: F) -> F {
            [_mm256_fmadd_ps(a[0], b[0], c[0]), _mm256_fmadd_ps(a[1], b[1], c[1])]
        }
        fn int(x: i32) -> I { [_mm256_set1_epi32(x); 2] }
        fn int_add(a: I, b: I) -> I { [_mm256_add_epi32(a[0], b[0]), _mm256_add_epi32(a[1], b[1])] }
        fn int_and(a: I, mask: u32) -> I {{
            let mask = _mm256_set1_epi32(mask as i32);
            [_mm256_and_si256(a[0], mask), _mm256_and_si256(a[1], mask)]
        }}
        fn int_or(a: I, b: I) -> I { [_mm256_or_si256(a[0], b[0]), _mm256_or_si256(a[1], b[1])] }
        fn int_shl(a: I, n: u32) -> I {{
            let n = _mm_cvtsi32_si128(n as i32);
            [_mm256_sll_epi32(a[0], n), _mm256_sll_epi32(a[1], n)]
        }}
        fn int_shr(a: I, n: u32) -> I {{
            let n = _mm_cvtsi32_si128(n as i32);
            [_mm256_srl_epi32(a[0], n), _mm256_srl_epi32(a[1], n)]
        }}
        fn int_sar(a: I, n: u32) -> I {{
            let n = _mm_cvtsi32_si128(n as i32);
            [_mm256_sra_epi32(a[0], n), _mm256_sra_epi32(a[1], n)]
        }}
        fn int_to_f32(a: I) -> F { [_mm256_cvtepi32_ps(a[0]), _mm256_cvtepi32_ps(a[1])] }
        fn bits_to_f32(a: I) -> F { [_mm256_castsi256_ps(a[0]), _mm256_castsi256_ps(a[1])] }
        fn half_to_f32(a: I) -> F {{
            let low = _mm256_set1_epi32(0xffff);
            let packed = _mm256_packus_epi32(_mm256_and_si256(a[0], low), _mm256_and_si256(a[1], low));
            let halves = _mm256_permute4x64_epi64::<0xd8>(packed);
            [
                _mm256_cvtph_ps(_mm256_castsi256_si128(halves)),
                _mm256_cvtph_ps(_mm256_extracti128_si256::<1>(halves)),
            ]
        }}
        fn or(a: I, b: I) -> I { [_mm256_or_si256(a[0], b[0]), _mm256_or_si256(a[1], b[1])] }
        fn shift_mask(a: I, n: i32, mask: u8) -> I {{
            let (count, mask) = (_mm_cvtsi32_si128(n.abs()), _mm256_set1_epi8(mask as i8));
            let shifted = if n < 0 {
                [_mm256_sll_epi16(a[0], count), _mm256_sll_epi16(a[1], count)]
            } else {
                [_mm256_srl_epi16(a[0], count), _mm256_srl_epi16(a[1], count)]
            };
            [_mm256_and_si256(shifted[0], mask), _mm256_and_si256(shifted[1], mask)]
        }}
        fn signed(a: I) -> I { [D::signed(a[0]), D::signed(a[1])] }
        fn dot(acc: I, w: I, a: I) -> I { [D::dot(acc[0], w[0], a[0]), D::dot(acc[1], w[1], a[1])] }
        fn dot_signed(acc: I, w: I, a: I) -> I {
            [D::dot_signed(acc[0], w[0], a[0]), D::dot_signed(acc[1], w[1], a[1])]
        }
        fn sum_halves(v: [I; 8]) -> [I; 2] {{
            let a = add_lanes([v[0][0], v[1][0], v[2][0], v[3][0]]);
            let b = add_lanes([v[0][1], v[1][1], v[2][1], v[3][1]]);
            let c = add_lanes([v[4][0], v[5][0], v[6][0], v[7][0]]);
            let d = add_lanes([v[4][1], v[5][1], v[6][1], v[7][1]]);
            [
                [_mm256_permute2x128_si256::<0x20>(a, b), _mm256_permute2x128_si256::<0x20>(c, d)],
                [_mm256_permute2x128_si256::<0x31>(a, b), _mm256_permute2x128_si256::<0x31>(c, d)],
            ]
        }}
        fn transpose_bytes(v: [I; 8]) -> [I; 8] {{
            let (mut low, mut high) = ([_mm256_setzero_ps(); 8], [_mm256_setzero_ps(); 8]);
            for i in 0..4 {
                low[i] = _mm256_castsi256_ps(v[i][0]);
                low[4 + i] = _mm256_castsi256_ps(v[i][1]);
                high[i] = _mm256_castsi256_ps(v[4 + i][0]);
                high[4 + i] = _mm256_castsi256_ps(v[4 + i][1]);
            }
            let (low, high) = (transpose8(low), transpose8(high));
            let mut out = v;
            for i in 0..8 {
                out[i] = [_mm256_castps_si256(low[i]), _mm256_castps_si256(high[i])];
            }
            out
        }}
        fn sum(v: F) -> f32 {{
            let v = _mm256_add_ps(v[0], v[1]);
            let v = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let v = _mm_add_ps(v, _mm_movehl_ps(v, v));
            _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)))
        }}
    }

    #[inline(always)]
    fn transpose(self, rows: &mut [F; LANES]) {
        // SAFETY: the token proves the instructions.
        unsafe {
            let mut squares = [[[_mm256_setzero_ps(); 8]; 2]; 2];
            for (r, row) in rows.iter().enumerate() {
                squares[0][r / 8][r % 8] = row[0];
                squares[1][r / 8][r % 8] = row[1];
            }
            for (side, [top, bottom]) in squares.into_iter().enumerate() {
                let (top, bottom) = (transpose8(top), transpose8(bottom));
                for i in 0..8 {
                    rows[8 * side + i] = [top[i], bottom[i]];
                }
            }
        }
    }

    #[inline(always)]
    fn run<O: Op>(self, op: O) -> O::Output {
        // SAFETY: the token proves the instructions.
        unsafe { D::run(self, op) }
    }

    #[inline(always)]
    fn prefetch(self, p: *const u8) {
        // SAFETY: a prefetch never faults; the token proves the instruction.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(p.cast()) }
    }
}

/// The sixteen low nibbles, then the sixteen high ones.
#[inline]
#[target_feature(enable = "avx2")]
fn nibbles(v: __m128i) -> __m256i {
    _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16::<4>(v), v), _mm256_set1_epi8(15))
}

/// `value` in the bytes whose bit is set.
#[inline]
#[target_feature(enable = "avx2")]
fn bits(bits: i32, value: u8) -> __m256i {
    let (first, second) = (0x0101_0101_0101_0101, 0x0202_0202_0202_0202);
    let byte = _mm256_set_epi64x(first + second, second, first, 0);
    let bit = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
    let set = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(bits), byte), bit);
    _mm256_and_si256(_mm256_cmpeq_epi8(set, bit), _mm256_set1_epi8(value as i8))
}

/// In each 128-bit lane: the sums of four vectors' lanes.
#[inline]
#[target_feature(enable = "avx2")]
fn add_lanes(v: [__m256i; 4]) -> __m256i {
    _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]))
}

/// Rows become columns.
#[inline]
#[target_feature(enable = "avx2")]
fn transpose8(v: [__m256; 8]) -> [__m256; 8] {
    let (a0, a1) = (_mm256_unpacklo_ps(v[0], v[1]), _mm256_unpackhi_ps(v[0], v[1]));
    let (a2, a3) = (_mm256_unpacklo_ps(v[2], v[3]), _mm256_unpackhi_ps(v[2], v[3]));
    let (a4, a5) = (_mm256_unpacklo_ps(v[4], v[5]), _mm256_unpackhi_ps(v[4], v[5]));
    let (a6, a7) = (_mm256_unpacklo_ps(v[6], v[7]), _mm256_unpackhi_ps(v[6], v[7]));
    let (b0, b1) = (_mm256_shuffle_ps::<0x44>(a0, a2), _mm256_shuffle_ps::<0xee>(a0, a2));
    let (b2, b3) = (_mm256_shuffle_ps::<0x44>(a1, a3), _mm256_shuffle_ps::<0xee>(a1, a3));
    let (b4, b5) = (_mm256_shuffle_ps::<0x44>(a4, a6), _mm256_shuffle_ps::<0xee>(a4, a6));
    let (b6, b7) = (_mm256_shuffle_ps::<0x44>(a5, a7), _mm256_shuffle_ps::<0xee>(a5, a7));
    [
        _mm256_permute2f128_ps::<0x20>(b0, b4),
        _mm256_permute2f128_ps::<0x20>(b1, b5),
        _mm256_permute2f128_ps::<0x20>(b2, b6),
        _mm256_permute2f128_ps::<0x20>(b3, b7),
        _mm256_permute2f128_ps::<0x31>(b0, b4),
        _mm256_permute2f128_ps::<0x31>(b1, b5),
        _mm256_permute2f128_ps::<0x31>(b2, b6),
        _mm256_permute2f128_ps::<0x31>(b3, b7),
    ]
}
