use super::super::math::{exp, gelu_tanh, silu, tanh};
use super::*;
use minfer_tensor::Block;
use minfer_tensor::quant::Q8_0;

/// Units in the last place of f32 between `a` and the exact value.
fn ulps(a: f32, exact: f64) -> f64 {
    let unit = f64::from((exact as f32).abs().max(f32::MIN_POSITIVE).to_bits() >> 23 & 0xff) - 150.0;
    (f64::from(a) - exact).abs() / unit.exp2()
}

/// Every `step`th finite f32.
fn sampled(step: usize) -> impl Iterator<Item = f32> {
    (0..=u32::MAX).step_by(step).map(f32::from_bits).filter(|x| x.is_finite())
}

const STEP: usize = if cfg!(miri) { 40_000_003 } else { 1009 };

#[test]
fn exp_is_within_1_2_ulp() {
    for x in sampled(STEP) {
        let exact = f64::from(x).exp();
        if exact >= f64::from(f32::MAX) {
            assert!(exp(x) >= f32::MAX * 0.999_999, "exp({x:e}) = {:e}", exp(x));
        } else {
            assert!(ulps(exp(x), exact) <= 1.2, "exp({x:e}) = {:e}, not {exact:e}", exp(x));
        }
    }
    assert_eq!(exp(f32::NEG_INFINITY), 0.0);
    assert_eq!(exp(f32::INFINITY), f32::INFINITY);
    assert_eq!((exp(0.0), exp(-0.0)), (1.0, 1.0));
    assert!(exp(f32::NAN).is_nan());
}

#[test]
fn tanh_is_within_4_ulp() {
    for x in sampled(STEP) {
        let exact = f64::from(x).tanh();
        assert!(ulps(tanh(x), exact) <= 4.0, "tanh({x:e}) = {:e}, not {exact:e}", tanh(x));
    }
    assert!(tanh(f32::NAN).is_nan());
}

#[test]
fn activations_match_f64() {
    for x in sampled(STEP).filter(|x| x.abs() < 50.0) {
        let wide = f64::from(x);
        let exact = wide / (1.0 + (-wide).exp());
        assert!((f64::from(silu(x)) - exact).abs() <= 4e-7 * exact.abs() + 1e-37, "silu({x:e})");
        let u = (2.0 / std::f64::consts::PI).sqrt() * (wide + 0.044_715 * wide.powi(3));
        let exact = wide / (1.0 + (-2.0 * u).exp());
        // The argument of exp is rounded: its error grows with its size.
        let tolerance = 4e-7 * (1.0 + 2.0 * u.abs()) * exact.abs() + 1e-37;
        assert!((f64::from(gelu_tanh(x)) - exact).abs() <= tolerance, "gelu({x:e})");
    }
}

#[test]
fn rms_norm_matches_f64() {
    let mut rng = Rng::new(5);
    let (x, w) = (rng.floats(3 * 77), rng.floats(77));
    let mut y = vec![0.0; x.len()];
    scalar().rms_norm(&mut y, &x, 77, Some(&w), 1e-5);
    for (x, y) in x.chunks(77).zip(y.chunks(77)) {
        let mean = x.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / 77.0;
        for ((x, y), w) in x.iter().zip(y).zip(&w) {
            let exact = f64::from(*x) / (mean + 1e-5).sqrt() * f64::from(*w);
            assert!((f64::from(*y) - exact).abs() <= 5e-7 * exact.abs());
        }
    }
}

#[test]
fn softmax_sums_to_one_and_keeps_nan() {
    for table in Kernels::available() {
        let mut row = Rng::new(6).floats(1000);
        row[3] = f32::NEG_INFINITY;
        table.softmax(&mut row);
        assert_eq!(row[3], 0.0);
        assert!((row.iter().sum::<f32>() - 1.0).abs() < 1e-5);
        row[7] = f32::NAN;
        table.softmax(&mut row);
        assert!(row.iter().all(|x| x.is_nan()));
    }
}

#[test]
fn rope_turns_pairs() {
    let (mut frequencies, mut room) = ([0.0; 2], [0.0; 4]);
    rope_frequencies(&mut frequencies, 100.0, 0.5, Some(&[1.0, 2.0]));
    assert!((frequencies[0] - 0.5).abs() < 1e-12 && (frequencies[1] - 0.025).abs() < 1e-12);
    let angles = RopeAngles::fill(&mut room, 3, &frequencies);
    let ((s0, c0), (s1, c1)) = (1.5f32.sin_cos(), 0.075f32.sin_cos());
    let row = [1.0, 2.0, 3.0, 4.0, 9.0, 5.0, 6.0, 7.0, 8.0, 9.0];
    for (halves, expected) in [
        (true, [c0 - 3.0 * s0, 2.0 * c1 - 4.0 * s1, s0 + 3.0 * c0, 2.0 * s1 + 4.0 * c1]),
        (false, [c0 - 2.0 * s0, s0 + 2.0 * c0, 3.0 * c1 - 4.0 * s1, 3.0 * s1 + 4.0 * c1]),
    ] {
        let mut turned = row;
        scalar().rope(&mut turned, 5, &angles, halves);
        for (a, b) in turned.iter().zip(expected) {
            assert!((a - b).abs() < 1e-6);
        }
        assert_eq!((turned[4], turned[9]), (9.0, 9.0));
    }
}

/// Every kernel of this file on one input, results in one row.
fn everything(table: &Kernels, a: &[f32], b: &[f32]) -> Vec<f32> {
    type InPlace = fn(&Kernels, &mut [f32], &[f32]);
    let kernels: [InPlace; 10] = [
        |t, a, b| t.add(a, b),
        |t, a, b| t.mul(a, b),
        |t, a, b| t.silu_mul(a, b),
        |t, a, b| t.gelu_mul(a, b),
        |t, a, _| t.scale(a, 0.3),
        |t, a, _| t.softcap(a, 30.0),
        |t, a, _| t.softmax(a),
        |t, a, b| t.rms_norm(a, b, b.len(), Some(b), 1e-6),
        |t, a, b| t.rms_norm(a, b, b.len(), None, 1e-6),
        |t, a, b| {
            let mut half = vec![0; a.len()];
            t.to_f16(&mut half, b);
            a.iter_mut().zip(half).for_each(|(a, h)| *a = half::f16::from_bits(h).to_f32());
        },
    ];
    let mut all = Vec::new();
    for kernel in kernels {
        let mut a = a.to_vec();
        kernel(table, &mut a, b);
        all.extend(a);
    }
    for halves in [false, true] {
        let pairs = a.len() / 4;
        let (mut a, mut room) = (a.to_vec(), vec![0.0; 2 * pairs]);
        let frequencies: Vec<f64> = (0..pairs).map(|i| 0.9f64.powi(i as i32)).collect();
        let head = a.len();
        table.rope(&mut a, head, &RopeAngles::fill(&mut room, 77, &frequencies), halves);
        all.extend(a);
    }
    all
}

/// `x` through blocks of Q8_0.
fn through_q8_0(table: &Kernels, x: &[f32]) -> (Vec<Q8_0>, Vec<f32>) {
    let mut blocks = vec![Q8_0 { d: [0; 2], qs: [0; QK] }; x.len() / QK];
    table.to_q8_0(&mut blocks, x);
    let mut decoded = vec![0.0; x.len()];
    blocks.iter().zip(decoded.as_chunks_mut().0).for_each(|(block, x)| block.decode(x));
    (blocks, decoded)
}

#[test]
fn q8_0_is_within_half_a_step() {
    let mut rng = Rng::new(4);
    for exponent in -12..22 {
        let x: Vec<f32> = rng.floats(4 * QK).iter().map(|x| x * 2f32.powi(exponent)).collect();
        let (blocks, decoded) = through_q8_0(scalar(), &x);
        for (i, (x, y)) in x.iter().zip(&decoded).enumerate() {
            // The scale is an f16: it adds up to half a unit in the eleventh bit, or of the smallest one.
            let scale = blocks[i / QK].scale();
            let rounding = (scale * 2f32.powi(-11)).max(2f32.powi(-25));
            assert!((x - y).abs() <= 0.5 * scale + 128.0 * rounding, "{x:e} and {y:e} in steps of {scale:e}");
        }
        for table in fast_tables() {
            assert_eq!(through_q8_0(table, &x).0, blocks, "{}", table.name());
        }
    }
}

#[test]
fn q8_0_hides_no_bad_number() {
    for table in Kernels::available() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX] {
            let mut x = vec![127.0; 2 * QK];
            x[7] = bad;
            let (_, decoded) = through_q8_0(table, &x);
            assert!(decoded[..QK].iter().all(|x| !x.is_finite()), "{} {bad}", table.name());
            assert_eq!(decoded[QK..], x[QK..], "{}", table.name());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn tables_give_the_same_bits(seed in any::<u64>(), len in 1usize..200, wild in any::<bool>()) {
        let mut rng = Rng::new(seed);
        let mut draw = |_| if wild { f32::from_bits(rng.bits() as u32) } else { rng.float() * 20.0 };
        let (a, b): (Vec<f32>, Vec<f32>) = ((0..len).map(&mut draw).collect(), (0..len).map(&mut draw).collect());
        let expected = everything(scalar(), &a, &b);
        for table in fast_tables() {
            assert_same_bits(&everything(table, &a, &b), &expected, table.name());
        }
    }
}
