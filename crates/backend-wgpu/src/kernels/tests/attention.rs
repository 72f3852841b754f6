//! Attention with either way to add up.

use minfer_tensor::{Bytes, DType, decode_row, encode_row};
use minfer_testkit::rng::Rng;

use super::machine::{Machine, Memory};
use crate::kernels::{AttentionParams, Kernel, Params};

const STATE_ROWS: usize = 300;
const HEADS: usize = 6;
const KV_HEADS: usize = 2;
const NO_CAP: f32 = 0.0;

/// Keys or values: encoded, and what that means.
fn state(dtype: DType, cols: usize, seed: u64) -> (Vec<u8>, Vec<f32>) {
    let mut values = Rng::new(seed).normals(STATE_ROWS * cols, 1.0);
    let row_bytes = dtype.row_bytes(cols).and_then(Bytes::to_usize).expect("whole blocks");
    let mut bytes = vec![0; STATE_ROWS * row_bytes];
    for (values, bytes) in values.chunks_exact_mut(cols).zip(bytes.chunks_exact_mut(row_bytes)) {
        encode_row(dtype, values, bytes).expect("whole blocks");
        decode_row(dtype, bytes, values).expect("whole blocks");
    }
    (bytes, values)
}

/// The result for one query head: a softmax over the scores of all positions from `start` to `end`.
fn expected(q: &[f32], k: &[f32], v: &[f32], (start, end): (usize, usize), cap: f32) -> Vec<f64> {
    let (d, cols) = (q.len(), KV_HEADS * q.len());
    let score = |p: usize| {
        let dot: f64 = q.iter().zip(&k[p * cols..]).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum();
        if cap == NO_CAP { dot * 0.25 } else { f64::from(cap) * (dot * 0.25 / f64::from(cap)).tanh() }
    };
    let scores: Vec<f64> = (start..end).map(score).collect();
    let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = scores.iter().map(|s| (s - most).exp()).collect();
    let total: f64 = weights.iter().sum();
    let value = |i: usize| {
        let sum: f64 = weights.iter().zip(start..end).map(|(w, p)| w * f64::from(v[p * cols + i])).sum();
        sum / total
    };
    (0..d).map(value).collect()
}

fn check(kernel: Kernel, dtype: DType, head_dim: usize, window: u32, cap: f32) {
    let Some(machine) = Machine::get() else { return };
    let positions = [0i32, 299, -1, 31, 160, 64];
    let (cols, kv_cols) = (HEADS * head_dim, KV_HEADS * head_dim);
    let ((k_bytes, k), (v_bytes, v)) = (state(dtype, kv_cols, 1), state(dtype, kv_cols, 2));
    let q = Rng::new(3).normals(positions.len() * cols, 1.0);
    let word = |n: usize| u32::try_from(n).expect("a small number");
    let params = AttentionParams {
        rows: word(positions.len()),
        n_heads: word(HEADS),
        n_kv_heads: word(KV_HEADS),
        state_rows: word(STATE_ROWS),
        row_bytes: word(k_bytes.len() / STATE_ROWS),
        q: 0,
        k: 0,
        v: 0,
        positions: 0,
        out: 0,
        window,
        scale: 0.25,
        softcap: cap,
    };
    let mut memory = [
        Memory::new(&q, &[0]),
        Memory::new(&k_bytes, &[1]),
        Memory::new(&v_bytes, &[2]),
        Memory::new(&positions, &[3]),
        Memory::new(&vec![f32::NAN; q.len()], &[4]),
    ];
    machine.run(kernel, &Params::Attention(params), &mut memory);
    let (mut error, mut power) = (0.0, 0.0);
    for (i, found) in memory[4].floats().chunks_exact(head_dim).enumerate() {
        let (row, head) = (i / HEADS, i % HEADS);
        let Ok(position) = usize::try_from(positions[row]) else {
            assert!(found.iter().all(|&x| x == 0.0), "{kernel:?}: a padding row");
            continue;
        };
        let first = head / (HEADS / KV_HEADS) * head_dim;
        let seen = ((position + 1).saturating_sub(window as usize), position + 1);
        for (&found, exact) in
            found.iter().zip(expected(&q[i * head_dim..][..head_dim], &k[first..], &v[first..], seen, cap))
        {
            error += (f64::from(found) - exact).powi(2);
            power += exact * exact;
        }
    }
    assert!(error <= 1e-12 * power, "{kernel:?}, window {window}, cap {cap}: {:.1e}", error / power);
}

#[test]
fn heads_of_any_size_are_exact_in_every_state() {
    for (state, head_dim) in [(DType::F32, 20), (DType::F16, 80), (DType::Q8_0, 96)] {
        for subgroup in [false, true] {
            let kernel = Kernel::Attention { state, head_dim: head_dim as u32, subgroup };
            check(kernel, state, head_dim, u32::MAX, NO_CAP);
        }
    }
}

#[test]
fn windows_and_caps_bound_what_is_seen() {
    let kernel = Kernel::Attention { state: DType::F16, head_dim: 64, subgroup: false };
    for (window, cap) in [(1, NO_CAP), (33, NO_CAP), (200, 3.0), (u32::MAX, 0.5)] {
        check(kernel, DType::F16, 64, window, cap);
    }
}
