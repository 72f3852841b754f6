//! Project tasks: set-up, continuous integration, tidy checks.
fn main() {}
