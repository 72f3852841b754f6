//! Speed of a whole graph: a random model in the shape of SmolLM2-135M, decoding and 512 tokens of prompt.
//!
//! `cargo run --release -p minfer-backend-cpu --example transformer -- [threads] [context] [kernels]`
#![allow(clippy::print_stdout, reason = "a measurement prints what it measures")]

use std::time::{Duration, Instant};

use minfer_backend_cpu::{CpuBackend, CpuSpec, Kernels};
use minfer_graph::{Backend, BackendError};
use minfer_testkit::runner::{Runner, Session};
use minfer_testkit::transformer::Transformer;

const MODEL: Transformer = Transformer::SMOL;
const PROMPT: usize = 512;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let threads = args.first().map_or(Ok(2), |text| text.parse())?;
    let context: usize = args.get(1).map_or(Ok(128), |text| text.parse())?;
    let kernels = args.get(2).map_or(Some(Kernels::detect()), |name| Kernels::by_name(name));
    let spec = CpuSpec::new(threads, kernels.ok_or("no such kernels here")?);
    let mut backend = CpuBackend::new(spec)?;
    println!("{}", backend.spec().device_name());
    let mut session = Session::new(&mut backend);
    MODEL.register(&mut session, 1)?;
    println!("weights {}", session.backend.weights_bytes());
    let decode = time(&mut session, &[1], context, 100)?;
    report(&format!("decode at {context}"), 1, decode);
    let prompt = time(&mut session, &[1; PROMPT], 0, 5)?;
    report(&format!("prompt of {PROMPT}"), PROMPT, prompt);
    Ok(())
}

fn report(what: &str, tokens: usize, [best, median]: [Duration; 2]) {
    let speed = |time: Duration| tokens as f64 / time.as_secs_f64();
    println!("{what}: {:.0} tokens/s (median {:.0}), {best:?}", speed(best), speed(median));
}

/// Best and median time of a run with `tokens` at positions `first..`.
fn time(
    session: &mut Session<'_>,
    tokens: &[i32],
    first: usize,
    rounds: usize,
) -> Result<[Duration; 2], Box<dyn std::error::Error>> {
    let mut runner = Runner::new(session, &MODEL.graph(tokens.len(), 1)?)?;
    let mut step = || -> Result<Duration, BackendError> {
        let start = Instant::now();
        MODEL.step(session, &mut runner, tokens, first, 1)?;
        Ok(start.elapsed())
    };
    step()?;
    let mut times = (0..rounds).map(|_| step()).collect::<Result<Vec<_>, _>>()?;
    times.sort_unstable();
    runner.release(session);
    Ok([times[0], times[rounds / 2]])
}
