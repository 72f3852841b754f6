//! How rows of keys and values are stored, and read sixteen values at a time.
#![allow(unsafe_code, reason = "pointer loads within a row")]

use super::super::dense::Float;
use super::super::simd::Simd;
use minfer_tensor::quant::{Q8_0, QK};

/// A type of keys and values. Blocks are decoded in registers: no copy of a row is made.
pub(crate) trait Cached: Copy {
    /// Bytes of a row of `cols` values.
    fn row_bytes(cols: usize) -> usize;

    /// Reads sixteen values of a row from column `col` on, a multiple of sixteen.
    ///
    /// # Safety
    /// `row` must be a readable row with these columns, aligned as its type.
    unsafe fn load<S: Simd>(s: S, row: *const u8, col: usize) -> S::F;
}

impl<W: Float> Cached for W {
    #[inline(always)]
    fn row_bytes(cols: usize) -> usize {
        cols * size_of::<W::Bits>()
    }

    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, row: *const u8, col: usize) -> S::F {
        // SAFETY: the caller's promise.
        unsafe { W::load(s, row.cast::<W::Bits>().add(col)) }
    }
}

impl Cached for Q8_0 {
    #[inline(always)]
    fn row_bytes(cols: usize) -> usize {
        cols / QK * size_of::<Q8_0>()
    }

    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, row: *const u8, col: usize) -> S::F {
        // SAFETY: the caller's promise; half a block follows `col % QK`, which is 0 or 16.
        unsafe {
            let block = &*row.cast::<Q8_0>().add(col / QK);
            let q = s.load_i8(block.qs.as_ptr().add(col % QK));
            s.mul(q, s.splat_f16(u16::from_le_bytes(block.d)))
        }
    }
}
