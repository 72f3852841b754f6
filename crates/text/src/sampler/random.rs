//! Random numbers that a seed determines, on every machine and in every version.
//!
//! SplitMix64 (Steele, Lea, Flood 2014): a counter through a mixing function. Written out here since a crate may change
//! its stream between versions, which would change the text that a seed gives.

use std::hash::{BuildHasher, RandomState};

/// The stream of one seed.
#[derive(Debug, Clone)]
pub(super) struct Random {
    counter: u64,
}

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self { counter: seed }
    }

    fn next(&mut self) -> u64 {
        self.counter = self.counter.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.counter ^ self.counter >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    /// A number from 0 to less than 1, a multiple of 2^-53.
    pub(super) fn next_unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// A seed from the operating system's randomness.
pub(super) fn seed() -> u64 {
    RandomState::new().hash_one(0u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first numbers of the reference implementation for the seed 1234567.
    #[test]
    fn the_stream_is_that_of_the_reference() {
        let mut random = Random::new(1_234_567);
        assert_eq!(random.next(), 6_457_827_717_110_365_317);
        assert_eq!(random.next(), 3_203_168_211_198_807_973);
    }
}
