//! AVX-VNNI: four products of bytes and their sum are one instruction.
#![allow(unsafe_code, reason = "intrinsics behind a capability token")]

use super::{Avx2, Dot, found};
use crate::kernels::simd::{Op, Simd};
use crate::kernels::{Kernels, kernel_table};
use std::arch::x86_64::*;
use std::marker::PhantomData;

/// The table, if this processor can run it.
pub(crate) fn kernels() -> Option<&'static Kernels> {
    static TABLE: Kernels = kernel_table!("avx-vnni", Avx2::<Vnni>(PhantomData));
    (found() && is_x86_feature_detected!("avxvnni")).then_some(&TABLE)
}

/// Unsigned times signed bytes; signed weights are moved up by 128.
#[derive(Clone, Copy)]
struct Vnni;

impl Dot for Vnni {
    const SIGNED_ZERO: i32 = 128;

    #[inline(always)]
    unsafe fn signed(a: __m256i) -> __m256i {
        // SAFETY: the caller's promise.
        unsafe { _mm256_xor_si256(a, _mm256_set1_epi8(-128)) }
    }
    #[inline(always)]
    unsafe fn dot(acc: __m256i, w: __m256i, a: __m256i) -> __m256i {
        // SAFETY: the caller's promise.
        unsafe { _mm256_dpbusd_avx_epi32(acc, w, a) }
    }
    #[inline(always)]
    unsafe fn dot_signed(acc: __m256i, w: __m256i, a: __m256i) -> __m256i {
        // SAFETY: the caller's promise.
        unsafe { Self::dot(acc, w, a) }
    }
    #[inline(always)]
    unsafe fn run<O: Op>(simd: Avx2<Self>, op: O) -> O::Output {
        #[target_feature(enable = "avx2,fma,f16c,avxvnni")]
        #[inline(never)]
        fn inner<O: Op>(simd: Avx2<Vnni>, op: O) -> O::Output {
            op.run(simd)
        }
        // SAFETY: the caller's promise.
        unsafe { inner(simd, op) }
    }
}
