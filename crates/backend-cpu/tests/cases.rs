//! Every op case on every kernel table, with weights repacked or in place, against the oracle.

use minfer_backend_cpu::{CpuBackend, CpuSpec, Kernels};
use minfer_graph::Backend;
use minfer_testkit::cases::{all_cases, run_case};

#[test]
fn every_table_agrees_with_the_oracle() {
    let cases = all_cases();
    let mut failures = Vec::new();
    let tables = Kernels::available().iter().flat_map(|kernels| [(kernels, true), (kernels, false)]);
    for (kernels, repack) in tables {
        let mut backend = CpuBackend::new(CpuSpec::new(2, kernels).with_repack(repack)).unwrap();
        let spec = backend.spec().clone();
        let supported: Vec<_> = cases.iter().filter(|case| case.supported_by(&*spec)).collect();
        assert!(supported.len() * 10 > cases.len() * 9, "most cases run");
        let results = supported.into_iter().map(|case| run_case(&mut backend, case));
        failures.extend(
            results.filter_map(Result::err).map(|e| format!("{}, repack {repack}: {e}", kernels.name())),
        );
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}
