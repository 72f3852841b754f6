//! Every op case against the oracle, from the list that the CPU runs. Most of the time goes into compiling kernels, so the
//! list is cut into tests that runners start in parallel.

mod support;

use minfer_backend_wgpu::OpenOptions;
use minfer_graph::Backend;
use minfer_tensor::Bytes;
use minfer_testkit::cases::{OpCase, all_cases, run_case};

/// What the names of the cases of each test begin with; one test has the rest.
const PRODUCTS: [&str; 2] = ["mat_mul", "two mat_muls"];
const ATTENTION: [&str; 1] = ["attention"];

fn is_of(case: &OpCase, names: &[&str]) -> bool {
    names.iter().any(|name| case.name.starts_with(name))
}

/// Runs the cases that `wanted` says, on one device; at least `least` of them.
fn run(options: OpenOptions, least: usize, wanted: impl Fn(&OpCase) -> bool) {
    let Some(mut backend) = support::open(options) else { return };
    let spec = backend.spec().clone();
    let cases: Vec<OpCase> = all_cases().into_iter().filter(|case| wanted(case)).collect();
    assert!(cases.len() >= least, "{} cases", cases.len());
    let missing: Vec<_> = cases.iter().filter(|case| !case.supported_by(&*spec)).map(|c| &c.name).collect();
    assert!(missing.is_empty(), "no kernel for {missing:?}");
    let failures: Vec<_> = cases.iter().filter_map(|case| run_case(&mut backend, case).err()).collect();
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn products_agree_with_the_oracle() {
    run(OpenOptions::default(), 190, |case| is_of(case, &PRODUCTS));
}

#[test]
fn attention_agrees_with_the_oracle() {
    run(OpenOptions::default(), 100, |case| is_of(case, &ATTENTION));
}

#[test]
fn everything_else_agrees_with_the_oracle() {
    run(OpenOptions::default(), 250, |case| !is_of(case, &PRODUCTS) && !is_of(case, &ATTENTION));
}

#[test]
fn weights_in_pieces_give_the_same_results() {
    // One row of the widest weights of these types, some of the others.
    let weight_chunk = Some(Bytes::new(700));
    let options = OpenOptions { weight_chunk, ..Default::default() };
    let wanted = ["mat_mul F32", "mat_mul Q4_0", "mat_mul Q6_K", "mat_mul with a slice", "get_rows"];
    run(options, 110, |case| is_of(case, &wanted));
}
