//! Every op case against the oracle, from the list that the CPU runs.

mod support;

use minfer_backend_wgpu::OpenOptions;
use minfer_graph::Backend;
use minfer_tensor::Bytes;
use minfer_testkit::cases::{OpCase, all_cases, run_case};

fn failures(backend: &mut dyn Backend, cases: &[&OpCase]) -> Vec<String> {
    cases.iter().filter_map(|case| run_case(backend, case).err()).collect()
}

#[test]
fn every_case_agrees_with_the_oracle() {
    let Some(mut backend) = support::open(OpenOptions::default()) else { return };
    let (cases, spec) = (all_cases(), backend.spec().clone());
    let supported: Vec<_> = cases.iter().filter(|case| case.supported_by(&*spec)).collect();
    let missing: Vec<_> = cases.iter().filter(|case| !case.supported_by(&*spec)).map(|c| &c.name).collect();
    assert!(missing.is_empty(), "no kernel for {missing:?}");
    let failures = failures(&mut backend, &supported);
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn weights_in_pieces_give_the_same_results() {
    // One row of the widest weights of the list, some of the others.
    let weight_chunk = Some(Bytes::new(700));
    let Some(mut backend) = support::open(OpenOptions { weight_chunk, ..Default::default() }) else { return };
    let cases = all_cases();
    let with_weights = ["mat_mul", "two mat_muls", "get_rows"];
    let wanted = |case: &&OpCase| with_weights.iter().any(|what| case.name.starts_with(what));
    let fits = |case: &&OpCase| {
        let spec = backend.spec();
        case.weights.iter().all(|(decl, _)| spec.weight_bytes(decl, false).anonymous != Bytes::MAX)
    };
    let chosen: Vec<_> = cases.iter().filter(wanted).filter(fits).collect();
    assert!(chosen.len() > 150, "{} cases", chosen.len());
    let failures = failures(&mut backend, &chosen);
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}
