//! The definition: sixteen lanes in plain Rust, for any processor.
#![allow(unsafe_code, reason = "pointer loads under the contract of `Simd`")]

use super::simd::{LANES, Op, PAIRS, Rows, Simd};
use half::{bf16, f16};
use std::array::from_fn;

/// Portable lanes; always available.
#[derive(Clone, Copy)]
pub(crate) struct Scalar;

/// The 32 bytes of row `r` (of sixteen) in vectors that hold rows as [`PAIRS`].
fn row_bytes<T: Copy, const N: usize>(v: &[[T; N]; 8], r: usize) -> &[T] {
    let pair = PAIRS.iter().position(|&(a, b)| a == r || b == r).unwrap_or(0);
    if PAIRS[pair].0 == r { &v[pair][..N / 2] } else { &v[pair][N / 2..] }
}

/// Reads `N` values.
///
/// # Safety
/// `p` must be readable for `N` values.
unsafe fn read<T: Copy, const N: usize>(p: *const T) -> [T; N] {
    // SAFETY: the caller's promise; alignment isn't needed.
    unsafe { p.cast::<[T; N]>().read_unaligned() }
}

// SAFETY (all blocks below): the caller of an unsafe `Simd` method promises that the bytes it names are
// readable, or writable.
impl Simd for Scalar {
    type F = [f32; LANES];
    type I = [i32; LANES];
    type Bytes = [u8; 64];
    const SIGNED_ZERO: i32 = 0;
    const PANEL_TILE: (usize, usize) = (1, 4);
    const MANY_REGISTERS: bool = false;
    const DENSE_TILE: (usize, usize) = (2, 2);

    fn splat(self, x: f32) -> Self::F {
        [x; LANES]
    }
    fn splat_f16(self, bits: u16) -> Self::F {
        [f16::from_bits(bits).to_f32(); LANES]
    }
    unsafe fn load(self, p: *const f32) -> Self::F {
        // SAFETY: see above.
        unsafe { read(p) }
    }
    unsafe fn store(self, p: *mut f32, v: Self::F) {
        // SAFETY: see above.
        unsafe { p.cast::<Self::F>().write_unaligned(v) }
    }
    unsafe fn load_f16(self, p: *const u16) -> Self::F {
        // SAFETY: see above.
        let bits: [u16; LANES] = unsafe { read(p) };
        bits.map(|h| f16::from_bits(h).to_f32())
    }
    unsafe fn load_i8(self, p: *const i8) -> Self::F {
        // SAFETY: see above.
        let bytes: [i8; LANES] = unsafe { read(p) };
        bytes.map(f32::from)
    }
    unsafe fn load_bf16(self, p: *const u16) -> Self::F {
        // SAFETY: see above.
        let bits: [u16; LANES] = unsafe { read(p) };
        bits.map(|h| bf16::from_bits(h).to_f32())
    }
    unsafe fn store_f16(self, p: *mut u16, v: Self::F) {
        // SAFETY: see above.
        unsafe { p.cast::<[u16; LANES]>().write_unaligned(v.map(|x| f16::from_f32(x).to_bits())) }
    }
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        from_fn(|i| a[i] + b[i])
    }
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        from_fn(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        from_fn(|i| a[i] * b[i])
    }
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        from_fn(|i| a[i].mul_add(b[i], c[i]))
    }
    fn transpose(self, rows: &mut [Self::F; LANES]) {
        *rows = from_fn(|c| from_fn(|r| rows[r][c]));
    }

    fn int(self, x: i32) -> Self::I {
        [x; LANES]
    }
    fn int_add(self, a: Self::I, b: Self::I) -> Self::I {
        from_fn(|i| a[i] + b[i])
    }
    fn int_and(self, a: Self::I, mask: u32) -> Self::I {
        a.map(|x| x & mask as i32)
    }
    fn int_or(self, a: Self::I, b: Self::I) -> Self::I {
        from_fn(|i| a[i] | b[i])
    }
    fn int_shl(self, a: Self::I, n: u32) -> Self::I {
        a.map(|x| x << n)
    }
    fn int_shr(self, a: Self::I, n: u32) -> Self::I {
        a.map(|x| (x as u32 >> n) as i32)
    }
    fn int_sar(self, a: Self::I, n: u32) -> Self::I {
        a.map(|x| x >> n)
    }
    fn int_to_f32(self, a: Self::I) -> Self::F {
        a.map(|x| x as f32)
    }
    fn bits_to_f32(self, a: Self::I) -> Self::F {
        a.map(|x| f32::from_bits(x as u32))
    }
    fn half_to_f32(self, a: Self::I) -> Self::F {
        a.map(|x| f16::from_bits(x as u16).to_f32())
    }
    unsafe fn gather(self, p: *const u8, rows: &Rows) -> Self::I {
        // SAFETY: see above.
        rows.index.map(|at| i32::from_le_bytes(unsafe { read(p.add(at as usize)) }))
    }
    unsafe fn load_words(self, p: *const u8) -> Self::I {
        // SAFETY: see above.
        let words: [[u8; 4]; LANES] = unsafe { read(p.cast()) };
        words.map(i32::from_le_bytes)
    }
    unsafe fn load_halves(self, p: *const u8) -> Self::I {
        // SAFETY: see above.
        let halves: [[u8; 2]; LANES] = unsafe { read(p.cast()) };
        halves.map(|half| i32::from(u16::from_le_bytes(half)))
    }

    unsafe fn load_bytes(self, p: *const u8) -> Self::Bytes {
        // SAFETY: see above.
        unsafe { read(p) }
    }
    unsafe fn store_bytes(self, p: *mut u8, v: Self::Bytes) {
        // SAFETY: see above.
        unsafe { p.cast::<Self::Bytes>().write_unaligned(v) }
    }
    unsafe fn load_pair(self, a: *const u8, b: *const u8) -> Self::Bytes {
        // SAFETY: see above.
        let rows: [[u8; 32]; 2] = unsafe { [read(a), read(b)] };
        from_fn(|i| rows[i / 32][i % 32])
    }
    unsafe fn load_nibbles(self, a: *const u8, b: *const u8) -> Self::Bytes {
        // SAFETY: see above.
        let rows: [[u8; 16]; 2] = unsafe { [read(a), read(b)] };
        from_fn(|i| (rows[i / 32][i % 16] >> (i % 32 / 16 * 4)) & 15)
    }
    unsafe fn load_bits(self, a: *const u8, b: *const u8, value: u8) -> Self::Bytes {
        // SAFETY: see above.
        let rows = unsafe { [u32::from_le_bytes(read(a)), u32::from_le_bytes(read(b))] };
        from_fn(|i| if rows[i / 32] >> (i % 32) & 1 == 1 { value } else { 0 })
    }
    unsafe fn splat32(self, p: *const u8) -> Self::Bytes {
        // SAFETY: see above.
        let x: [u8; 32] = unsafe { read(p) };
        from_fn(|i| x[i % 32])
    }
    unsafe fn splat4(self, p: *const u8) -> Self::Bytes {
        // SAFETY: see above.
        let x: [u8; 4] = unsafe { read(p) };
        from_fn(|i| x[i % 4])
    }
    fn or(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes {
        from_fn(|i| a[i] | b[i])
    }
    fn shift_mask(self, a: Self::Bytes, n: i32, mask: u8) -> Self::Bytes {
        a.map(|x| if n < 0 { x << -n } else { x >> n } & mask)
    }
    fn signed(self, a: Self::Bytes) -> Self::Bytes {
        a
    }

    fn dot(self, acc: Self::I, w: Self::Bytes, a: Self::Bytes) -> Self::I {
        from_fn(|l| (4 * l..4 * l + 4).fold(acc[l], |s, i| s + i32::from(w[i]) * i32::from(a[i] as i8)))
    }
    fn dot_signed(self, acc: Self::I, w: Self::Bytes, a: Self::Bytes) -> Self::I {
        from_fn(|l| (4 * l..4 * l + 4).fold(acc[l], |s, i| s + i32::from(w[i] as i8) * i32::from(a[i] as i8)))
    }
    fn sum_halves(self, v: [Self::I; 8]) -> [Self::I; 2] {
        from_fn(|half| from_fn(|r| row_bytes(&v, r)[half * 4..half * 4 + 4].iter().sum()))
    }
    fn transpose_bytes(self, v: [Self::Bytes; 8]) -> [Self::Bytes; 8] {
        from_fn(|k| from_fn(|i| row_bytes(&v, i / 4)[k * 4 + i % 4]))
    }

    fn run<O: Op>(self, op: O) -> O::Output {
        op.run(self)
    }
    fn prefetch(self, _: *const u8) {}
}
