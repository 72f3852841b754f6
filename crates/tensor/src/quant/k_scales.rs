//! The 6-bit scales and minima that `Q4_K` and `Q5_K` share.

use super::{MAX_HALF, QK, QK_K, half_from_f32, half_to_f32, inverse, min_max};

/// Sub-blocks of 32 in a super-block.
const SUBS: usize = QK_K / QK;

/// Scale and minimum of sub-block `j` (below 8), each below 64.
///
/// Bytes 0..4 hold the scales of 0..4 and bytes 4..8 their minima in 6 bits; bytes 8..12 hold the low
/// nibbles of scales and minima of 4..8, whose upper two bits fill bytes 0..8 up. Source: the packing
/// described in `gguf-py/gguf/quants.py`, `Q4_K.get_scale_min`.
///
/// # Panics
/// If `j` is 8 or more.
#[inline]
#[must_use]
pub fn scale_min(scales: &[u8; 12], j: usize) -> (u8, u8) {
    if j < 4 {
        (scales[j] & 63, scales[j + 4] & 63)
    } else {
        let low = scales[j + 4];
        (low & 15 | (scales[j - 4] >> 6) << 4, low >> 4 | (scales[j] >> 6) << 4)
    }
}

/// The inverse of [`scale_min`] for all sub-blocks.
fn pack(sc: [u8; SUBS], mins: [u8; SUBS]) -> [u8; 12] {
    let mut packed = [0; 12];
    for j in 0..4 {
        packed[j] = sc[j] | (sc[j + 4] >> 4) << 6;
        packed[j + 4] = mins[j] | (mins[j + 4] >> 4) << 6;
        packed[j + 8] = sc[j + 4] & 15 | (mins[j + 4] & 15) << 4;
    }
    packed
}

/// A super-block's header and its elements, each in a byte of its own.
pub(super) struct Fit {
    pub(super) d: [u8; 2],
    pub(super) dmin: [u8; 2],
    pub(super) scales: [u8; 12],
    pub(super) q: [u8; QK_K],
}

/// Fits `x = d * scale * q - dmin * min` with `q` in `0..=levels` for each sub-block.
pub(super) fn fit(values: &[f32; QK_K], levels: u8) -> Fit {
    let subs = values.as_chunks::<QK>().0;
    let ranges: [(f32, f32); SUBS] = std::array::from_fn(|j| {
        // The stored minimum is subtracted and not negative, so every range reaches down to 0 at most.
        let (min, max) = min_max(&subs[j]);
        (((max.max(0.0) - min.min(0.0)) / f32::from(levels)).min(MAX_HALF), -min.min(0.0))
    });
    let (d, sc) = six_bits(ranges.map(|range| range.0));
    let (dmin, mins) = six_bits(ranges.map(|range| range.1));
    let mut q = [0; QK_K];
    for (j, (q, sub)) in q.as_chunks_mut::<QK>().0.iter_mut().zip(subs).enumerate() {
        let inverse = inverse(half_to_f32(d) * f32::from(sc[j]));
        let min = half_to_f32(dmin) * f32::from(mins[j]);
        *q = sub.map(|x| (((x + min) * inverse + 0.5) as u8).min(levels));
    }
    Fit { d, dmin, scales: pack(sc, mins), q }
}

/// Numbers that aren't negative as 6-bit multiples of a common half.
fn six_bits(x: [f32; SUBS]) -> ([u8; 2], [u8; SUBS]) {
    let unit = half_from_f32(x.into_iter().fold(0.0, f32::max) / 63.0);
    let inverse = inverse(half_to_f32(unit));
    (unit, x.map(|x| ((x * inverse).round() as u8).min(63)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packing_is_the_inverse_of_unpacking() {
        let sc = [0, 63, 21, 42, 63, 0, 37, 16];
        let mins = [63, 0, 11, 52, 15, 48, 63, 1];
        let packed = pack(sc, mins);
        for j in 0..SUBS {
            assert_eq!(scale_min(&packed, j), (sc[j], mins[j]));
        }
    }
}
