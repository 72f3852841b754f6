//! `minfer bench`: the speed of prefill and decode.

mod limits;
mod table;

use minfer_engine::{BenchOptions, BenchRun, Demand, Measured, Plan};
use serde::Serialize;

use crate::args::BenchArgs;
use crate::error::CliError;
use crate::output::{self, Versioned};
use crate::progress::Bar;
use crate::session::{self, Session};
use crate::signal::Interruptible;

use limits::{CpuLimits, Work};

#[derive(Serialize)]
struct Report {
    model: String,
    threads: usize,
    device: String,
    results: Vec<TestResult>,
    /// Bytes a second that the device reads from its memory, measured before the load; absent without a device.
    #[serde(skip_serializing_if = "Option::is_none")]
    device_bytes_per_second: Option<f64>,
    /// Why no result has limits of the CPU; absent where they have.
    #[serde(skip_serializing_if = "Option::is_none")]
    no_cpu_limits: Option<String>,
    memory: Plan,
}

#[derive(Serialize)]
struct TestResult {
    /// `pp512`, `tg128`, and with a filled context `pp512@d1024`.
    test: String,
    tokens_per_second: Speed,
    /// What it read and multiplied.
    work: Work,
    /// What the CPU does at best, and the share of it; absent if part of the model is on a device.
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_limits: Option<CpuLimits>,
    /// What the device did for it; absent without a device.
    #[serde(skip_serializing_if = "Option::is_none")]
    device_work: Option<DeviceWork>,
}

/// What a device did for one token, in the mean.
#[derive(Debug, PartialEq, Serialize)]
struct DeviceWork {
    /// Kernels that were started.
    dispatches_per_token: f64,
    /// Batches of work that were handed to the device.
    submissions_per_token: f64,
    /// Bytes of weights that kernels read.
    weight_bytes_per_token: f64,
    /// Those bytes a second, of what the device reads at best.
    bandwidth_share: Option<f64>,
}

#[derive(Debug, PartialEq, Serialize)]
struct Speed {
    mean: f64,
    stddev: f64,
    runs: Vec<f64>,
}

/// Measures every repetition and shows mean and standard deviation.
pub(super) fn bench(args: &BenchArgs) -> Result<(), CliError> {
    if (args.prompt, args.generate) == (0, 0) {
        return Err(CliError::NothingToMeasure);
    }
    let file = session::open(&args.model)?;
    let mut options = args.model.engine.options();
    if options.ctx.is_none() {
        let usual = options.n_ctx(file.model().config().n_ctx_train);
        options.ctx = Some(usual.max(args.depth as usize + args.prompt.max(args.generate) as usize));
    }
    let mut session = session::load_measuring(file, &args.model, &options)?;
    let report = repeat(&mut session, args).and_then(|runs| report(&session, args, &runs));
    session.finish(&args.model)?;
    let report = report?;
    if args.model.output.json {
        return output::print_json(&Versioned::new(report));
    }
    output::print(&if args.markdown { table::markdown(&report) } else { table::text(&report) })
}

fn options(args: &BenchArgs) -> BenchOptions {
    BenchOptions {
        prompt: args.prompt as usize,
        generate: args.generate as usize,
        depth: args.depth as usize,
        limits: true,
    }
}

fn repeat(session: &mut Session, args: &BenchArgs) -> Result<Vec<BenchRun>, CliError> {
    let options = options(args);
    let work = Interruptible::begin();
    let mut bar = Bar::new(args.model.output.quiet);
    let mut runs = Vec::new();
    // The first use of a weight reads it from the disk: that isn't measured.
    let batch = session.engine.plan().request.batch;
    let warm_up = BenchOptions {
        depth: 0,
        prompt: options.prompt.min(batch),
        generate: options.generate.min(1),
        limits: false,
    };
    session.engine.bench(warm_up, work.flag())?;
    for n in 0..args.repetitions {
        bar.step("measuring", n.into(), args.repetitions.into());
        runs.push(session.engine.bench(options, work.flag())?);
        if work.flag().is_cancelled() {
            return Err(CliError::Interrupted);
        }
    }
    Ok(runs)
}

fn report(session: &Session, args: &BenchArgs, runs: &[BenchRun]) -> Result<Report, CliError> {
    let plan = session.engine.plan();
    let demand = session.engine.bench_demand(options(args))?;
    let depth = if args.depth > 0 { format!("@d{}", args.depth) } else { String::new() };
    let result = |name: &str, tokens: u32, demand: Demand, part: fn(&BenchRun) -> Option<Measured>| {
        let parts: Vec<Measured> = runs.iter().filter_map(part).collect();
        let speed = |part: &Measured| f64::from(tokens) / part.time.as_secs_f64();
        let speeds: Vec<f64> = parts.iter().map(speed).collect();
        (!speeds.is_empty()).then(|| TestResult {
            test: format!("{name}{tokens}{depth}"),
            tokens_per_second: Speed::of(speeds),
            work: Work::of(&parts, tokens, &demand),
            cpu_limits: CpuLimits::of(&parts, &demand),
            device_work: DeviceWork::of(&parts, tokens, session.device_bytes_per_second),
        })
    };
    let results = [
        result("pp", args.prompt, demand.prompt, |run| run.prompt),
        result("tg", args.generate, demand.generate, |run| run.generate),
    ];
    let (on_device, n_layers) = (plan.offload.gpu_layers, plan.offload.n_layers);
    let no_cpu_limits =
        format!("{on_device} of {n_layers} blocks are on a device: no share of the CPU's limits");
    Ok(Report {
        model: plan.model.path.display().to_string(),
        threads: plan.request.threads,
        device: plan.backends.first().map(|backend| backend.device.clone()).unwrap_or_default(),
        results: results.into_iter().flatten().collect(),
        device_bytes_per_second: session.device_bytes_per_second,
        no_cpu_limits: (on_device > 0).then_some(no_cpu_limits),
        memory: session.engine.memory_report(),
    })
}

impl DeviceWork {
    /// The mean of several parts of `tokens` tokens each; `None` if the device did nothing.
    fn of(parts: &[Measured], tokens: u32, bytes_per_second: Option<f64>) -> Option<Self> {
        let tokens = f64::from(tokens) * parts.len() as f64;
        let sum = |counter: fn(&Measured) -> u64| parts.iter().map(counter).sum::<u64>() as f64;
        let seconds = parts.iter().map(|part| part.time.as_secs_f64()).sum::<f64>();
        let bytes = sum(|part| part.work.weight_bytes);
        let dispatches = sum(|part| part.work.dispatches);
        (dispatches > 0.0).then(|| Self {
            dispatches_per_token: dispatches / tokens,
            submissions_per_token: sum(|part| part.work.submissions) / tokens,
            weight_bytes_per_token: bytes / tokens,
            bandwidth_share: bytes_per_second.map(|best| bytes / seconds / best),
        })
    }

    fn line(&self) -> String {
        let share = self.bandwidth_share.map(|share| format!(", {:.1} % of its bandwidth", 100.0 * share));
        format!(
            "{:.1} dispatches a token, {:.2} submissions, {:.2} MiB of weights{}",
            self.dispatches_per_token,
            self.submissions_per_token,
            self.weight_bytes_per_token / f64::from(1 << 20),
            share.unwrap_or_default(),
        )
    }
}

impl Speed {
    /// Mean and sample standard deviation.
    fn of(runs: Vec<f64>) -> Self {
        let n = runs.len() as f64;
        let mean = runs.iter().sum::<f64>() / n;
        let squares: f64 = runs.iter().map(|run| (run - mean).powi(2)).sum();
        let stddev = if runs.len() > 1 { (squares / (n - 1.0)).sqrt() } else { 0.0 };
        Self { mean, stddev, runs }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speed_has_mean_and_sample_deviation() {
        let speed = Speed::of(vec![1.0, 2.0, 3.0]);
        assert_eq!((speed.mean, speed.stddev), (2.0, 1.0));
        assert_eq!(Speed::of(vec![5.0]).stddev, 0.0);
    }
}
