//! The binary as its users' scripts see it: streams, exit codes, JSON.

mod errors;
mod json;
mod run;
mod signals;
mod smollm2;
mod streams;
mod support;
