//! Test support: the oracle, op cases, tolerances, tiny models, a fake backend.

pub mod fake;
mod machine;
pub mod random;
