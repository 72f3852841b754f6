//! Operations on elements and norms at the ends of their range.

use minfer_graph::Activation;
use minfer_testkit::rng::Rng;

use super::machine::{Machine, Memory};
use crate::kernels::{ElementParams, Kernel, Params, RmsNormParams};

/// Numbers of every size, both signs.
fn sizes() -> Vec<f32> {
    let sizes = (-300..=300).map(|i| 10f32.powf(i as f32 / 10.0));
    sizes
        .flat_map(|x| [x, -x])
        .chain([0.0, 0.624, 0.625, 0.626, 87.0, 88.0, 89.0, f32::MAX, f32::MIN])
        .collect()
}

fn map(kernel: Kernel, x: &[f32], second: Option<&[f32]>, constant: f32) -> Option<Vec<f32>> {
    let cols = u32::try_from(x.len()).expect("a short row");
    let params = ElementParams { rows: 1, cols, x: 0, y: 0, out: 0, y_len: cols, constant };
    let mut memory = vec![Memory::new(x, if second.is_some() { &[0, 2] } else { &[0, 1] })];
    memory.extend(second.map(|y| Memory::new(y, &[1])));
    Machine::get()?.run(kernel, &Params::Element(params), &mut memory);
    Some(memory[0].floats())
}

fn assert_close(x: &[f32], found: &[f32], exact: impl Fn(f64) -> f64) {
    for (&x, &found) in x.iter().zip(found) {
        let exact = exact(f64::from(x));
        // Below 1e-30 a result may be 0: nobody needs the difference.
        let error = (f64::from(found) - exact).abs();
        assert!(error <= 2e-6 * exact.abs() + 1e-30, "of {x}: expected {exact}, found {found}");
    }
}

#[test]
fn softcap_is_exact_for_numbers_of_every_size() {
    let x = sizes();
    let Some(found) = map(Kernel::Softcap, &x, None, 30.0) else { return };
    assert_close(&x, &found, |x| 30.0 * (x / 30.0).tanh());
}

#[test]
fn activations_are_exact_where_they_are_large_and_finite_everywhere() {
    let x = sizes();
    let ones = vec![1.0; x.len()];
    for act in [Activation::Silu, Activation::GeluTanh] {
        let Some(found) = map(Kernel::Glu(act), &x, Some(&ones), 0.0) else { return };
        let exact = |x: f64| match act {
            Activation::Silu => x / (1.0 + (-x).exp()),
            Activation::GeluTanh => x / (1.0 + (-2.0 * 0.797_884_560_8 * (x + 0.044715 * x.powi(3))).exp()),
        };
        for (&x, &found) in x.iter().zip(&found) {
            let exact = exact(f64::from(x));
            // The tail of exp has the error of its argument.
            let bound = if x < -5.0 { 1e-7 * f64::from(x).abs() } else { 2e-6 * exact.abs() + 1e-30 };
            assert!((f64::from(found) - exact).abs() <= bound, "{act:?} of {x}: {exact}, found {found}");
        }
    }
}

#[test]
fn nan_and_infinity_are_not_hidden() {
    let x = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
    let Some(silu) = map(Kernel::Glu(Activation::Silu), &x, Some(&[1.0; 3]), 0.0) else { return };
    assert!(silu[0].is_nan() && silu[1] == f32::INFINITY, "{silu:?}");
    let capped = map(Kernel::Softcap, &x, None, 2.0).expect("a device");
    assert!(capped[0].is_nan(), "{capped:?}");
    assert_eq!(capped[1..], [2.0, -2.0]);
    let scaled = map(Kernel::Scale, &x, None, -1.0).expect("a device");
    assert!(scaled[0].is_nan() && scaled[1] == f32::NEG_INFINITY, "{scaled:?}");
}

#[test]
fn norms_of_either_width_and_sum_are_the_same() {
    let Some(machine) = Machine::get() else { return };
    for cols in [1, 63, 64, 300, 1500] {
        let x = Rng::new(5).normals(4 * cols, 3.0);
        let w = Rng::new(6).normals(cols, 1.0);
        for (wide, subgroup) in [(false, false), (false, true), (true, false), (true, true)] {
            let params =
                RmsNormParams { rows: 3, cols: u32::try_from(cols).unwrap(), x: 0, w: 0, out: 0, eps: 1e-5 };
            let mut memory = [Memory::new(&x, &[0, 2]), Memory::new(&w, &[1])];
            machine.run(Kernel::RmsNorm { wide, subgroup }, &Params::RmsNorm(params), &mut memory);
            let found = memory[0].floats();
            assert_eq!(found[3 * cols..], x[3 * cols..], "a row beyond the last");
            for (x, found) in x.chunks_exact(cols).zip(found.chunks_exact(cols)).take(3) {
                let squares: f64 = x.iter().map(|&x| f64::from(x).powi(2)).sum();
                let root = (squares / cols as f64 + f64::from(1e-5f32)).sqrt();
                for ((&x, &w), &found) in x.iter().zip(&w).zip(found) {
                    let exact = f64::from(x) / root * f64::from(w);
                    assert!((f64::from(found) - exact).abs() <= 1e-6 * exact.abs(), "{exact}, found {found}");
                }
            }
        }
    }
}
