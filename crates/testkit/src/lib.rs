//! What tests share: a naive oracle, one list of op cases for every backend, named tolerances. Never a dependency of a
//! shipped crate.
//!
//! - [`oracle`]: what each operation means, in f64 and without a thought for speed.
//! - [`cases`]: every operation on every element type and awkward shape.
//! - [`runner`]: a graph on a [`Backend`](minfer_graph::Backend), placed in reused buffers as a real run would be.
//! - [`transformer`]: a small random model of the usual kind.
//! - [`fake`]: a backend without a device, whose values are hashes; [`random`]: models to run on it.

pub mod cases;
pub mod fake;
pub mod oracle;
pub mod random;
pub mod rng;
pub mod runner;
pub mod scripted;
pub mod tolerance;
pub mod transformer;

mod case_builder;
mod machine;

pub use cases::{OpCase, all_cases};
pub use oracle::Matrix;
pub use tolerance::Tolerance;
