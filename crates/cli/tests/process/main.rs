//! The binary as its users' scripts see it: streams, exit codes, JSON.

#![expect(clippy::unwrap_used, reason = "what the helpers unwrap fails the test")]

mod device;
mod errors;
mod json;
mod level;
#[cfg(target_os = "linux")]
mod memory;
mod run;
mod signals;
mod smollm2;
mod streams;
mod support;
mod terminal;
