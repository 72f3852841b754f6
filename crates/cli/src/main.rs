//! The `minfer` command line.
fn main() {}
