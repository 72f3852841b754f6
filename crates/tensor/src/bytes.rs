//! A number of bytes, distinct from a number of elements.

use std::fmt;
use std::iter::Sum;

/// A number of bytes. Arithmetic is checked, or saturates where the name says so.
///
/// Displays in MiB: two decimals from 1 MiB, six below, so that no number but 0 prints as 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(u64);

impl Bytes {
    /// No bytes.
    pub const ZERO: Self = Self(0);
    /// The largest number of bytes.
    pub const MAX: Self = Self(u64::MAX);
    /// 1 MiB, 1,048,576 bytes.
    pub const MIB: Self = Self(1 << 20);

    /// `n` bytes.
    #[must_use]
    pub const fn new(n: u64) -> Self {
        Self(n)
    }

    /// The size of a `T` in memory.
    #[must_use]
    pub const fn size_of<T>() -> Self {
        Self(size_of::<T>() as u64)
    }

    /// The size of a slice's elements.
    #[must_use]
    pub const fn of_slice<T>(slice: &[T]) -> Self {
        Self(size_of_val(slice) as u64)
    }

    /// The plain number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The number as an index into memory, `None` where an address is too narrow for it.
    #[must_use]
    pub fn to_usize(self) -> Option<usize> {
        usize::try_from(self.0).ok()
    }

    /// The sum, `None` on overflow.
    #[must_use]
    pub const fn checked_add(self, other: Self) -> Option<Self> {
        match self.0.checked_add(other.0) {
            Some(n) => Some(Self(n)),
            None => None,
        }
    }

    /// The difference, `None` below zero.
    #[must_use]
    pub const fn checked_sub(self, other: Self) -> Option<Self> {
        match self.0.checked_sub(other.0) {
            Some(n) => Some(Self(n)),
            None => None,
        }
    }

    /// This many bytes `count` times, `None` on overflow.
    #[must_use]
    pub const fn checked_mul(self, count: u64) -> Option<Self> {
        match self.0.checked_mul(count) {
            Some(n) => Some(Self(n)),
            None => None,
        }
    }

    /// The sum, or [`Bytes::MAX`] on overflow.
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference, or zero where `other` is larger.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// The next multiple of `align` bytes, `None` on overflow or where `align` is zero.
    #[must_use]
    pub const fn checked_align_up(self, align: Self) -> Option<Self> {
        match self.0.checked_next_multiple_of(align.0) {
            Some(n) => Some(Self(n)),
            None => None,
        }
    }
}

impl From<u64> for Bytes {
    fn from(n: u64) -> Self {
        Self(n)
    }
}

impl From<usize> for Bytes {
    fn from(n: usize) -> Self {
        Self(n as u64)
    }
}

/// Saturates: a total that no `u64` holds is larger than any budget, which is all that a sum is asked.
impl Sum for Bytes {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::ZERO, Self::saturating_add)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = self.0 as f64 / Self::MIB.0 as f64;
        let digits = if self.0 >= Self::MIB.0 { 2 } else { 6 };
        let text = format!("{mib:.digits$}");
        write!(f, "{} MiB", text.trim_end_matches('0').trim_end_matches('.'))
    }
}

#[cfg(test)]
mod tests {
    use super::Bytes;

    #[test]
    fn displays_in_mib_and_never_rounds_to_zero() {
        let cases = [
            (0, "0 MiB"),
            (1, "0.000001 MiB"),
            (4095, "0.003905 MiB"),
            (4096, "0.003906 MiB"),
            (1 << 20, "1 MiB"),
            (100 << 20, "100 MiB"),
            ((3 << 20) / 2, "1.5 MiB"),
            (5565 * (1 << 20) + (1 << 18), "5565.25 MiB"),
        ];
        for (n, text) in cases {
            assert_eq!(Bytes::new(n).to_string(), text);
        }
    }

    #[test]
    fn sums_saturate() {
        assert_eq!([Bytes::MAX, Bytes::new(1)].into_iter().sum::<Bytes>(), Bytes::MAX);
        assert_eq!([2u64, 3].map(Bytes::from).into_iter().sum::<Bytes>(), Bytes::new(5));
    }
}
