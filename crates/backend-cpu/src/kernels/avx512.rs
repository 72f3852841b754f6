//! AVX-512 with VNNI: a vector is one register.
#![allow(unsafe_code, reason = "intrinsics behind a capability token")]

use super::simd::{LANES, Op, Rows, Simd, memory_methods, methods};
use super::{Kernels, kernel_table};
use std::arch::x86_64::*;

/// Proof that the processor has the instructions that [`Simd::run`] enables.
#[derive(Clone, Copy)]
pub(crate) struct Avx512(());

impl Avx512 {
    /// The token, if this processor has all of the instructions.
    fn new() -> Option<Self> {
        let base = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c");
        let wide = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512vnni");
        (base && wide).then_some(Self(()))
    }
}

/// The table, if this processor can run it.
pub(crate) fn kernels() -> Option<&'static Kernels> {
    static TABLE: Kernels = kernel_table!("avx512-vnni", Avx512(()));
    Avx512::new().map(|_| &TABLE)
}

impl Simd for Avx512 {
    type F = __m512;
    type I = __m512i;
    type Bytes = __m512i;
    const SIGNED_ZERO: i32 = 128;
    const PANEL_TILE: (usize, usize) = (2, 6);
    const MANY_REGISTERS: bool = true;
    const DENSE_TILE: (usize, usize) = (4, 6);

    memory_methods! {
        fn load(p: *const f32) -> __m512 { _mm512_loadu_ps(p) }
        fn store(p: *mut f32, v: __m512) -> () { _mm512_storeu_ps(p, v) }
        fn load_f16(p: *const u16) -> __m512 { _mm512_cvtph_ps(_mm256_loadu_si256(p.cast())) }
        fn load_i8(p: *const i8) -> __m512 { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(p.cast()))) }
        fn load_bf16(p: *const u16) -> __m512 {
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(p.cast()))))
        }
        fn store_f16(p: *mut u16, v: __m512) -> () {
            _mm256_storeu_si256(p.cast(), _mm512_cvtps_ph::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(v))
        }
        fn gather(p: *const u8, rows: &Rows) -> __m512i {
            _mm512_i32gather_epi32::<1>(_mm512_loadu_si512(rows.index.as_ptr().cast()), p.cast())
        }
        fn load_words(p: *const u8) -> __m512i { _mm512_loadu_si512(p.cast()) }
        fn load_halves(p: *const u8) -> __m512i { _mm512_cvtepu16_epi32(_mm256_loadu_si256(p.cast())) }
        fn load_bytes(p: *const u8) -> __m512i { _mm512_loadu_si512(p.cast()) }
        fn store_bytes(p: *mut u8, v: __m512i) -> () { _mm512_storeu_si512(p.cast(), v) }
        fn load_pair(a: *const u8, b: *const u8) -> __m512i {
            _mm512_inserti64x4::<1>(
                _mm512_castsi256_si512(_mm256_loadu_si256(a.cast())),
                _mm256_loadu_si256(b.cast()),
            )
        }
        fn load_nibbles(a: *const u8, b: *const u8) -> __m512i {{
            let first = _mm512_broadcast_i32x4(_mm_loadu_si128(a.cast()));
            let both = _mm512_mask_broadcast_i32x4(first, 0xff00, _mm_loadu_si128(b.cast()));
            let high = 0x0004_0004_0004_0004;
            let counts = _mm512_set_epi64(high, high, 0, 0, high, high, 0, 0);
            _mm512_and_si512(_mm512_srlv_epi16(both, counts), _mm512_set1_epi8(15))
        }}
        fn load_bits(a: *const u8, b: *const u8, value: u8) -> __m512i {{
            let (a, b) = (a.cast::<u32>().read_unaligned(), b.cast::<u32>().read_unaligned());
            _mm512_maskz_set1_epi8(u64::from(b) << 32 | u64::from(a), value as i8)
        }}
        fn splat32(p: *const u8) -> __m512i { _mm512_broadcast_i64x4(_mm256_loadu_si256(p.cast())) }
        fn splat4(p: *const u8) -> __m512i { _mm512_set1_epi32(p.cast::<i32>().read_unaligned()) }
    }

    methods! {
        fn splat(x: f32) -> __m512 { _mm512_set1_ps(x) }
        fn splat_f16(bits: u16) -> __m512 { _mm512_cvtph_ps(_mm256_set1_epi16(bits as i16)) }
        fn add(a: __m512, b: __m512) -> __m512 { _mm512_add_ps(a, b) }
        fn max(a: __m512, b: __m512) -> __m512 { _mm512_max_ps(a, b) }
        fn mul(a: __m512, b: __m512) -> __m512 { _mm512_mul_ps(a, b) }
        fn fma(a: __m512, b: __m512, c: __m512) -> __m512 { _mm512_fmadd_ps(a, b, c) }
        fn int(x: i32) -> __m512i { _mm512_set1_epi32(x) }
        fn int_add(a: __m512i, b: __m512i) -> __m512i { _mm512_add_epi32(a, b) }
        fn int_and(a: __m512i, mask: u32) -> __m512i { _mm512_and_si512(a, _mm512_set1_epi32(mask as i32)) }
        fn int_or(a: __m512i, b: __m512i) -> __m512i { _mm512_or_si512(a, b) }
        fn int_shl(a: __m512i, n: u32) -> __m512i { _mm512_sll_epi32(a, _mm_cvtsi32_si128(n as i32)) }
        fn int_shr(a: __m512i, n: u32) -> __m512i { _mm512_srl_epi32(a, _mm_cvtsi32_si128(n as i32)) }
        fn int_sar(a: __m512i, n: u32) -> __m512i { _mm512_sra_epi32(a, _mm_cvtsi32_si128(n as i32)) }
        fn int_to_f32(a: __m512i) -> __m512 { _mm512_cvtepi32_ps(a) }
        fn bits_to_f32(a: __m512i) -> __m512 { _mm512_castsi512_ps(a) }
        fn half_to_f32(a: __m512i) -> __m512 { _mm512_cvtph_ps(_mm512_cvtepi32_epi16(a)) }
        fn or(a: __m512i, b: __m512i) -> __m512i { _mm512_or_si512(a, b) }
        fn shift_mask(a: __m512i, n: i32, mask: u8) -> __m512i {
            _mm512_and_si512(_mm512_rorv_epi32(a, _mm512_set1_epi32(n)), _mm512_set1_epi8(mask as i8))
        }
        fn signed(a: __m512i) -> __m512i { _mm512_xor_si512(a, _mm512_set1_epi8(-128)) }
        fn dot(acc: __m512i, w: __m512i, a: __m512i) -> __m512i { _mm512_dpbusd_epi32(acc, w, a) }
        fn dot_signed(acc: __m512i, w: __m512i, a: __m512i) -> __m512i { _mm512_dpbusd_epi32(acc, w, a) }
        fn sum_halves(v: [__m512i; 8]) -> [__m512i; 2] {{
            let (x, y) = (add_lanes([v[0], v[1], v[2], v[3]]), add_lanes([v[4], v[5], v[6], v[7]]));
            [_mm512_shuffle_i32x4::<0x88>(x, y), _mm512_shuffle_i32x4::<0xdd>(x, y)]
        }}
        fn transpose_bytes(v: [__m512i; 8]) -> [__m512i; 8] {{
            let x = transpose_lanes([v[0], v[1], v[2], v[3]]);
            let y = transpose_lanes([v[4], v[5], v[6], v[7]]);
            let low = |i: usize| _mm512_shuffle_i32x4::<0x88>(x[i], y[i]);
            let high = |i: usize| _mm512_shuffle_i32x4::<0xdd>(x[i], y[i]);
            [low(0), low(1), low(2), low(3), high(0), high(1), high(2), high(3)]
        }}
        fn sum(v: __m512) -> f32 {{
            let v = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v));
            let v = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let v = _mm_add_ps(v, _mm_movehl_ps(v, v));
            _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)))
        }}
    }

    #[inline(always)]
    fn transpose(self, rows: &mut [__m512; LANES]) {
        // SAFETY: the token proves the instructions.
        unsafe {
            let mut quads = [[_mm512_setzero_si512(); 4]; 4];
            for (i, quad) in quads.iter_mut().enumerate() {
                let row = |r: usize| _mm512_castps_si512(rows[4 * i + r]);
                *quad = transpose_lanes([row(0), row(1), row(2), row(3)]);
            }
            for j in 0..4 {
                let (a, b, c, d) = (quads[0][j], quads[1][j], quads[2][j], quads[3][j]);
                let (x, y) = (_mm512_shuffle_i32x4::<0x44>(a, b), _mm512_shuffle_i32x4::<0x44>(c, d));
                rows[j] = _mm512_castsi512_ps(_mm512_shuffle_i32x4::<0x88>(x, y));
                rows[4 + j] = _mm512_castsi512_ps(_mm512_shuffle_i32x4::<0xdd>(x, y));
                let (x, y) = (_mm512_shuffle_i32x4::<0xee>(a, b), _mm512_shuffle_i32x4::<0xee>(c, d));
                rows[8 + j] = _mm512_castsi512_ps(_mm512_shuffle_i32x4::<0x88>(x, y));
                rows[12 + j] = _mm512_castsi512_ps(_mm512_shuffle_i32x4::<0xdd>(x, y));
            }
        }
    }

    #[inline(always)]
    fn run<O: Op>(self, op: O) -> O::Output {
        #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
        #[inline(never)]
        fn inner<O: Op>(simd: Avx512, op: O) -> O::Output {
            op.run(simd)
        }
        // SAFETY: the token proves the instructions.
        unsafe { inner(self, op) }
    }

    #[inline(always)]
    fn prefetch(self, p: *const u8) {
        // SAFETY: a prefetch never faults; the token proves the instruction.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(p.cast()) }
    }
}

/// In each 128-bit lane: the sums of four vectors' lanes.
#[inline]
#[target_feature(enable = "avx512f")]
fn add_lanes(v: [__m512i; 4]) -> __m512i {
    let a = _mm512_add_epi32(_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
    let b = _mm512_add_epi32(_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]));
    _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b))
}

/// In each 128-bit lane: a transposed square of four vectors' lanes.
#[inline]
#[target_feature(enable = "avx512f")]
fn transpose_lanes(v: [__m512i; 4]) -> [__m512i; 4] {
    let (a, b) = (_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
    let (c, d) = (_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]));
    [
        _mm512_unpacklo_epi64(a, c),
        _mm512_unpackhi_epi64(a, c),
        _mm512_unpacklo_epi64(b, d),
        _mm512_unpackhi_epi64(b, d),
    ]
}
