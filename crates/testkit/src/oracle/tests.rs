//! The oracle against examples worked out by hand.

use super::*;

fn matrix(rows: usize, cols: usize, data: &[f64]) -> Matrix {
    assert_eq!(data.len(), rows * cols);
    Matrix { shape: Shape::new(rows, cols), data: data.to_vec() }
}

fn close(found: &Matrix, expected: &[f64]) {
    assert_eq!(found.data.len(), expected.len());
    for (f, e) in found.data.iter().zip(expected) {
        assert!((f - e).abs() < 1e-9, "found {:?}, expected {expected:?}", found.data);
    }
}

#[test]
fn mat_mul_transposes_the_weight() {
    let w = matrix(3, 2, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let x = matrix(2, 2, &[1.0, 0.0, 10.0, 1.0]);
    assert_eq!(mat_mul(&w, &x), matrix(2, 3, &[1.0, 3.0, 5.0, 12.0, 34.0, 56.0]));
}

#[test]
fn get_rows_gives_zeros_for_negative_ids() {
    let table = matrix(2, 2, &[1.0, 2.0, 3.0, 4.0]);
    let ids = matrix(3, 1, &[1.0, -1.0, 0.0]);
    assert_eq!(get_rows(&table, &ids), matrix(3, 2, &[3.0, 4.0, 0.0, 0.0, 1.0, 2.0]));
}

#[test]
fn rms_norm_divides_by_the_root_mean_square() {
    let found = rms_norm(&matrix(1, 2, &[3.0, 4.0]), &matrix(1, 2, &[1.0, 2.0]), 0.0);
    let rms = 12.5f64.sqrt();
    close(&found, &[3.0 / rms, 8.0 / rms]);
}

#[test]
fn activations_have_their_known_values() {
    assert!((activate(Activation::Silu, 1.0) - 0.731_058_578_630).abs() < 1e-9);
    assert!((activate(Activation::GeluTanh, 1.0) - 0.841_191_990_607).abs() < 1e-9);
    assert_eq!(activate(Activation::GeluTanh, 0.0), 0.0);
    assert!((softcap(1e9, 30.0) - 30.0).abs() < 1e-9);
}

#[test]
fn rope_turns_pairs_by_position() {
    let (x, p) = (matrix(1, 4, &[1.0, 0.0, 0.0, 1.0]), matrix(1, 1, &[2.0]));
    let spec = RopeSpec { head_dim: 4, n_rot: 4, style: RopeStyle::Adjacent, base: 100.0, scale: 1.0 };
    // Pair 0 turns by 2, pair 1 by 2 / 10.
    let (a, b) = (2f64, 0.2f64);
    close(&rope(&x, &p, None, &spec), &[a.cos(), a.sin(), -b.sin(), b.cos()]);
    let halves = RopeSpec { style: RopeStyle::Halves, ..spec };
    close(&rope(&x, &p, None, &halves), &[a.cos(), -b.sin(), a.sin(), b.cos()]);
    let partial = RopeSpec { n_rot: 2, style: RopeStyle::Halves, scale: 0.5, ..spec };
    close(&rope(&x, &p, None, &partial), &[1f64.cos(), 1f64.sin(), 0.0, 1.0]);
    let factors = matrix(1, 2, &[2.0, 1.0]);
    close(&rope(&x, &p, Some(&factors), &spec), &[1f64.cos(), 1f64.sin(), -b.sin(), b.cos()]);
}

#[test]
fn write_rows_rounds_to_the_state_and_skips_padding() {
    let state = matrix(3, 1, &[7.0, 8.0, 9.0]);
    let written =
        write_rows(&state, &matrix(2, 1, &[1.0 / 3.0, 5.0]), &matrix(2, 1, &[1.0, -1.0]), DType::F16);
    assert_eq!(written, matrix(3, 1, &[7.0, 0.333_251_953_125, 9.0]));
}

#[test]
fn attention_weighs_what_a_query_sees() {
    let spec =
        AttentionSpec { n_heads: 2, n_kv_heads: 1, head_dim: 1, scale: 1.0, window: None, softcap: None };
    let (k, v) = (matrix(3, 1, &[0.0, 2f64.ln(), 100.0]), matrix(3, 1, &[3.0, 9.0, 1e9]));
    let q = matrix(2, 2, &[1.0, 0.0, 5.0, 5.0]);
    let found = attention(&q, &k, &v, &matrix(2, 1, &[1.0, -1.0]), &spec);
    // Head 0 weighs its two keys 1 : 2, head 1 equally; the key at position 2 is in the future.
    close(&found, &[7.0, 6.0, 0.0, 0.0]);
    let window = AttentionSpec { window: Some(1), ..spec };
    close(&attention(&q, &k, &v, &matrix(2, 1, &[1.0, 0.0]), &window), &[9.0, 9.0, 3.0, 3.0]);
    let capped = AttentionSpec { softcap: Some(1e-12), ..spec };
    close(&attention(&q, &k, &v, &matrix(2, 1, &[1.0, -1.0]), &capped), &[6.0, 6.0, 0.0, 0.0]);
}

#[test]
fn a_graph_reads_what_it_wrote() {
    use minfer_graph::{GraphBuilder, Rows, StateDecl};
    let mut b = GraphBuilder::new();
    let decl =
        StateDecl { name: "k".into(), dtype: DType::F32, shape: Shape::new(4, 1), layer: 0, keys: false };
    let x = b.input("x", DType::F32, Shape::new(2, 1), Rows::PerToken(1)).unwrap();
    let p = b.input("p", DType::I32, Shape::new(2, 1), Rows::PerToken(1)).unwrap();
    let state = b.state(StateId::new(0), &decl).unwrap();
    let k = b.write_rows(state, x, p).unwrap();
    let spec =
        AttentionSpec { n_heads: 1, n_kv_heads: 1, head_dim: 1, scale: 0.0, window: None, softcap: None };
    let out = b.attention(x, k, k, p, spec).unwrap();
    b.output(out);
    let graph = b.finish().unwrap();
    let mut leaves = Leaves::default();
    leaves.states.insert(StateId::new(0), matrix(4, 1, &[1.0, 0.0, 0.0, 0.0]));
    leaves.inputs.insert(InputId::new(0), matrix(2, 1, &[2.0, 6.0]));
    leaves.inputs.insert(InputId::new(1), matrix(2, 1, &[1.0, 2.0]));
    close(&eval(&graph, &mut leaves)[0], &[1.5, 3.0]);
    assert_eq!(leaves.states[&StateId::new(0)].data, [1.0, 2.0, 6.0, 0.0]);
}
