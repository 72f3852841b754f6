//! What encoding may lose, and that no bytes or numbers are too odd.
#![allow(clippy::unwrap_used, reason = "helpers of tests unwrap as tests do")]

use minfer_tensor::{DType, decode_row, encode_row};
use proptest::prelude::*;

/// Elements of a row here: one block of the largest.
const LEN: usize = 256;
/// What rounding a scale or a minimum to half precision may change, relatively.
const HALF: f32 = 1.0 / 2048.0;

fn round_trip(dtype: DType, values: &[f32]) -> Vec<f32> {
    let mut bytes = vec![0; dtype.row_bytes(values.len()).unwrap().to_usize().unwrap()];
    encode_row(dtype, values, &mut bytes).unwrap();
    let mut out = vec![0.0; values.len()];
    decode_row(dtype, &bytes, &mut out).unwrap();
    out
}

/// The largest error of an element where the largest magnitude of the row is `max`.
///
/// Formats around zero lose a whole step at the end that the sign of the largest value left out; formats
/// with a minimum span 0 or `-max` to `max` and lose half a step; the K formats also round their scales, those
/// of Q6_K around zero too: a scale that is nearly the largest, of the other sign, loses a whole step of the scales.
fn bound(dtype: DType, max: f32) -> f32 {
    let range = 2.0 * max;
    let relative = match dtype {
        DType::F32 => return 0.0,
        DType::F16 => HALF,
        DType::BF16 => 1.0 / 256.0,
        DType::Q4_0 => 1.0 / 8.0 + HALF,
        DType::Q5_0 => 1.0 / 16.0 + HALF,
        DType::Q8_0 => 0.5 / 127.0 + HALF,
        DType::Q4_1 => return range * (0.5 / 15.0 + 2.0 * HALF),
        DType::Q5_1 => return range * (0.5 / 31.0 + 2.0 * HALF),
        DType::Q4K => return range * (0.5 / 15.0 + 1.0 / 63.0 + 2.0 * HALF),
        DType::Q5K => return range * (0.5 / 31.0 + 1.0 / 63.0 + 2.0 * HALF),
        DType::Q6K => 1.0 / 32.0 + 1.0 / 128.0 + HALF,
        DType::I32 => unreachable!("no weights"),
    };
    max * relative
}

fn weights() -> impl Iterator<Item = DType> {
    DType::ALL.into_iter().filter(|&dtype| dtype != DType::I32)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn encoding_loses_no_more_than_a_step(
        unit in prop::collection::vec(-1.0f32..=1.0, LEN),
        // Scales that a half holds with full precision.
        exponent in -4i32..8,
    ) {
        let values: Vec<f32> = unit.iter().map(|x| x * (exponent as f32).exp2()).collect();
        let max = values.iter().fold(0.0f32, |max, x| max.max(x.abs()));
        for dtype in weights() {
            let bound = bound(dtype, max) * 1.001;
            for (i, (x, y)) in values.iter().zip(round_trip(dtype, &values)).enumerate() {
                prop_assert!((x - y).abs() <= bound, "{dtype} element {i}: {x} became {y}, bound {bound}");
            }
        }
    }

    #[test]
    fn any_bytes_decode(bytes in prop::collection::vec(any::<u8>(), LEN * 4)) {
        for dtype in weights() {
            let row = dtype.row_bytes(LEN).unwrap().to_usize().unwrap();
            decode_row(dtype, &bytes[..row], &mut [0.0; LEN]).unwrap();
        }
    }

    #[test]
    fn finite_numbers_stay_finite(bits in prop::collection::vec(any::<u32>(), LEN)) {
        let values: Vec<f32> = bits.iter().map(|&b| f32::from_bits(b)).map(|x| if x.is_finite() { x } else { 0.0 }).collect();
        for dtype in weights().filter(|dtype| dtype.is_quantized()) {
            prop_assert!(round_trip(dtype, &values).iter().all(|x| x.is_finite()), "{dtype}");
        }
    }
}

#[test]
fn zeros_stay_zeros() {
    for dtype in weights() {
        assert!(round_trip(dtype, &[0.0; LEN]).iter().all(|&x| x == 0.0), "{dtype}");
    }
}

#[test]
fn constants_stay_constant() {
    for dtype in weights() {
        for constant in [1.0, -1.0, 0.02, -37.5, 1000.0f32] {
            let out = round_trip(dtype, &[constant; LEN]);
            assert!(out.iter().all(|&x| x == out[0]), "{dtype} of {constant}");
            let error = (out[0] - constant).abs() / constant.abs();
            assert!(error < 0.02, "{dtype}: {constant} became {}", out[0]);
        }
    }
}

#[test]
fn extremes_saturate_with_their_sign() {
    for dtype in weights().filter(|dtype| dtype.is_quantized()) {
        for extreme in [f32::MAX, f32::INFINITY, f32::MIN, f32::NEG_INFINITY] {
            let mut values = [0.0; LEN];
            values[5] = extreme;
            let out = round_trip(dtype, &values);
            assert!(out.iter().all(|x| x.is_finite()), "{dtype} of {extreme}");
            assert!(out[5] * extreme.signum() > 1e4, "{dtype}: {extreme} became {}", out[5]);
        }
        for tiny in [f32::MIN_POSITIVE, f32::from_bits(1), f32::NAN] {
            assert!(round_trip(dtype, &[tiny; LEN]).iter().all(|x| x.abs() < 1e-6), "{dtype} of {tiny}");
        }
    }
}

#[test]
fn rows_that_do_not_fit_are_refused() {
    let error = decode_row(DType::Q4_0, &[0; 18], &mut [0.0; 31]).unwrap_err();
    assert_eq!(error.to_string(), "31 elements of Q4_0 are not 18 bytes");
    assert!(encode_row(DType::Q4K, &[0.0; 256], &mut [0; 143]).is_err());
    let error = decode_row(DType::I32, &[0; 4], &mut [0.0; 1]).unwrap_err();
    assert_eq!(error.to_string(), "I32 is no type for weights");
}
