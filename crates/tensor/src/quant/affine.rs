//! Fitting 32 values with a scale and a minimum.

use super::{MAX_HALF, QK, inverse, min_max};

/// 32 values as `scale * q + min`.
pub(super) struct Fit {
    pub(super) scale: f32,
    pub(super) min: f32,
    pub(super) q: [u8; QK],
}

/// Spreads `0..=levels` from the smallest to the largest of the values.
pub(super) fn fit(values: &[f32; QK], levels: u8) -> Fit {
    let (min, max) = min_max(values);
    let scale = ((max - min) / f32::from(levels)).min(MAX_HALF);
    let inverse = inverse(scale);
    let q = values.map(|x| (((x - min) * inverse + 0.5) as u8).min(levels));
    Fit { scale, min, q }
}
