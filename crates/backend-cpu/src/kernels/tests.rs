//! Every table against the scalar one bit for bit, and the scalar one against naive f64 references.

use super::*;
use crate::{AlignedBuf, ByteCounter};
use minfer_tensor::{decode_row, encode_row};
use proptest::prelude::*;

mod attention;
mod limits;
mod matmul;
mod vector;

/// A small generator (xorshift) that tests share.
pub(super) struct Rng(u64);

impl Rng {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }
    pub(super) fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    /// Uniform in -1..1.
    pub(super) fn float(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }
    pub(super) fn floats(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.float()).collect()
    }
    /// Uniform in 0..n.
    pub(super) fn below(&mut self, n: usize) -> usize {
        (self.bits() >> 33) as usize % n
    }
}

/// An aligned buffer.
pub(super) fn buffer(bytes: usize) -> AlignedBuf {
    AlignedBuf::zeroed(bytes, &ByteCounter::default()).unwrap()
}

/// Asserts the same bits, any NaN equal to any other.
pub(super) fn assert_same_bits(a: &[f32], b: &[f32], what: &str) {
    assert_eq!(a.len(), b.len());
    for (i, (a, b)) in a.iter().zip(b).enumerate() {
        let same = a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
        assert!(same, "{what}: element {i}: {a:e} and {b:e}");
    }
}

/// The tables other than the scalar one.
pub(super) fn fast_tables() -> impl Iterator<Item = &'static Kernels> {
    Kernels::available().iter().copied().filter(|k| k.name() != "scalar")
}

pub(super) fn scalar() -> &'static Kernels {
    Kernels::by_name("scalar").unwrap()
}

#[test]
fn tables_are_found_by_name() {
    for table in Kernels::available() {
        assert_eq!(Kernels::by_name(table.name()).unwrap().name(), table.name());
    }
    assert_eq!(Kernels::detect().name(), Kernels::available()[0].name());
    assert!(Kernels::by_name("mmx").is_none());
}
