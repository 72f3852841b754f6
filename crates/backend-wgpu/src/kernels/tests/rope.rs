//! Angles at positions where single precision has lost them.

use minfer_graph::{RopeSpec, RopeStyle};

use super::machine::{Machine, Memory};
use crate::kernels::{Kernel, Params, RopeParams};

/// Turns heads of `(1, 0)` pairs, which gives cosines and sines, and compares with double precision.
fn check(spec: RopeSpec, positions: &[i32], factors: Option<&[f32]>) {
    let Some(machine) = Machine::get() else { return };
    let (cols, pairs) = (2 * spec.head_dim, spec.n_rot / 2);
    let places = |pair: usize| match spec.style {
        RopeStyle::Adjacent => (2 * pair, 2 * pair + 1),
        RopeStyle::Halves => (pair, pair + pairs),
    };
    let mut head: Vec<f32> = (0..spec.head_dim).map(|i| i as f32).collect();
    for (first, second) in (0..pairs).map(places) {
        (head[first], head[second]) = (1.0, 0.0);
    }
    let x = head.repeat(2 * positions.len());
    let mut params = RopeParams::new(&spec);
    params.rows = u32::try_from(positions.len()).unwrap();
    params.cols = u32::try_from(cols).unwrap();
    let mut memory = vec![Memory::new(&x, &[0, 2]), Memory::new(positions, &[1])];
    memory.extend(factors.map(|factors| Memory::new(factors, &[3])));
    let kernel = Kernel::Rope { style: spec.style, factors: factors.is_some() };
    machine.run(kernel, &Params::Rope(params), &mut memory);
    for (i, found) in memory[0].floats().chunks_exact(spec.head_dim).enumerate() {
        let position = f64::from(positions[i / 2]);
        assert_eq!(found[spec.n_rot..], head[spec.n_rot..]);
        for pair in 0..pairs {
            let frequency = f64::from(spec.base).powf(-(pair as f64) / pairs as f64) * f64::from(spec.scale);
            let angle = position * frequency / factors.map_or(1.0, |f| f64::from(f[pair]));
            let (first, second) = places(pair);
            let found = (f64::from(found[first]), f64::from(found[second]));
            let error = (found.0 - angle.cos()).abs().max((found.1 - angle.sin()).abs());
            // Half a unit in the last place, and the 32 bits of a frequency.
            let bound = 2e-7 + angle * 2f64.powi(-30);
            assert!(error <= bound, "{spec:?}, {position}, pair {pair}: off by {error:.1e}");
        }
    }
}

#[test]
fn angles_are_exact_at_any_position() {
    let positions = [0, 1, 2, 3, 100, 4095, 131_071];
    for style in [RopeStyle::Adjacent, RopeStyle::Halves] {
        for (head_dim, n_rot, base, scale) in [
            (64, 64, 1e4, 1.0),
            (256, 256, 1e6, 0.125),
            (80, 36, 5e5, 1.0),
            (512, 512, 1e7, 1.0),
            (6, 0, 1e4, 1.0),
        ] {
            check(RopeSpec { head_dim, n_rot, style, base, scale }, &positions, None);
        }
    }
}

#[test]
fn factors_divide_frequencies() {
    let factors: Vec<f32> = (0..32).map(|i| [1.0, 1.1, 32.0, 0.3][i % 4] * (1.0 + i as f32 / 7.0)).collect();
    let spec = RopeSpec { head_dim: 64, n_rot: 64, style: RopeStyle::Halves, base: 5e5, scale: 1.0 };
    check(spec, &[0, 1, 77, 8191], Some(&factors));
}
