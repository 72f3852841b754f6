//! Speed in units of the hardware, and what it could be.

use minfer_engine::{Demand, Limits, Measured};
use serde::Serialize;

/// Two measurements around a repetition that differ by more than this part of their mean say nothing of what lies between.
const STEADY: f64 = 0.15;

/// What a test reads and multiplies, counted from its graphs.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Work {
    /// Bytes of weights that are read for a token, in the mean: those of a batch are read once.
    weight_bytes_per_token: f64,
    /// Bytes of keys and values.
    kv_bytes_per_token: f64,
    /// Multiplications, each with its addition.
    macs_per_token: f64,
    /// All bytes in a second, the mean of the repetitions.
    pub(super) bytes_per_second: f64,
    /// Multiplications in a second.
    pub(super) macs_per_second: f64,
}

/// What the threads of the CPU did around the repetitions in loops that do nothing else.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct CpuLimits {
    /// Bytes a second that they read of what a step reads, the mean.
    pub(super) bytes_per_second: f64,
    /// Products of bytes a second, each with its addition.
    pub(super) macs_per_second: f64,
    /// The part of these bytes a second that the test reads: each repetition by the two reads around it, the mean.
    pub(super) read_share: f64,
    /// The same of the products.
    pub(super) mac_share: f64,
    /// The largest difference of two reads around a repetition, as a part of their mean.
    pub(super) read_difference: f64,
    /// The same of the products.
    mac_difference: f64,
    /// Whether one of the differences, or a share, is so large that the shares are doubtful.
    pub(super) unsteady: bool,
    runs: Vec<RunLimits>,
}

/// The limits around one repetition, before and after.
#[derive(Debug, PartialEq, Serialize)]
struct RunLimits {
    bytes_per_second: [f64; 2],
    macs_per_second: [f64; 2],
    read_share: f64,
    mac_share: f64,
}

impl Work {
    /// Of several parts of `tokens` tokens each, that ask for `demand` each.
    pub(super) fn of(parts: &[Measured], tokens: u32, demand: &Demand) -> Self {
        let per_token = |n: u64| n as f64 / f64::from(tokens);
        Self {
            weight_bytes_per_token: per_token(demand.weight_bytes.get()),
            kv_bytes_per_token: per_token(demand.state_bytes.get()),
            macs_per_token: per_token(demand.macs()),
            bytes_per_second: mean(parts.iter().map(|part| rate(demand.bytes().get(), part))),
            macs_per_second: mean(parts.iter().map(|part| rate(demand.macs(), part))),
        }
    }
}

impl CpuLimits {
    /// Of parts that ask for `demand` each; `None` if one of them has no limits.
    pub(super) fn of(parts: &[Measured], demand: &Demand) -> Option<Self> {
        let run = |part: &Measured| part.limits.map(|limits| RunLimits::of(part, &limits, demand));
        let runs = parts.iter().map(run).collect::<Option<Vec<_>>>()?;
        let largest =
            |of: fn(&RunLimits) -> [f64; 2]| runs.iter().map(|run| difference(of(run))).fold(0.0, f64::max);
        let read_difference = largest(|run| run.bytes_per_second);
        let mac_difference = largest(|run| run.macs_per_second);
        let most = runs.iter().map(|run| run.read_share.max(run.mac_share)).fold(0.0, f64::max);
        Some(Self {
            bytes_per_second: mean(runs.iter().flat_map(|run| run.bytes_per_second)),
            macs_per_second: mean(runs.iter().flat_map(|run| run.macs_per_second)),
            read_share: mean(runs.iter().map(|run| run.read_share)),
            mac_share: mean(runs.iter().map(|run| run.mac_share)),
            read_difference,
            mac_difference,
            unsteady: read_difference.max(mac_difference).max(most - 1.0) > STEADY,
            runs,
        })
    }

    /// The larger of the differences.
    pub(super) fn difference(&self) -> f64 {
        self.read_difference.max(self.mac_difference)
    }
}

impl RunLimits {
    fn of(part: &Measured, limits: &Limits, demand: &Demand) -> Self {
        Self {
            bytes_per_second: limits.read,
            macs_per_second: limits.products,
            read_share: rate(demand.bytes().get(), part) / mean(limits.read),
            mac_share: rate(demand.macs(), part) / mean(limits.products),
        }
    }
}

fn rate(n: u64, part: &Measured) -> f64 {
    n as f64 / part.time.as_secs_f64()
}

fn mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let (sum, n) = values.into_iter().fold((0.0, 0.0), |(sum, n), value| (sum + value, n + 1.0));
    sum / n
}

fn difference([before, after]: [f64; 2]) -> f64 {
    (before - after).abs() / mean([before, after])
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use minfer_engine::Limits;
    use minfer_tensor::Bytes;

    use super::*;

    fn demand() -> Demand {
        let bytes = |n| Bytes::new(n);
        Demand { weight_bytes: bytes(600), state_bytes: bytes(200), product_macs: 300, attention_macs: 100 }
    }

    fn part(millis: u64, read: [f64; 2]) -> Measured {
        let limits = Some(Limits { read, products: [900.0, 1100.0] });
        Measured { time: Duration::from_millis(millis), work: Default::default(), limits }
    }

    #[test]
    fn work_is_counted_a_token_and_a_second() {
        let parts = [part(1000, [1.0; 2]), part(500, [1.0; 2])];
        let work = Work::of(&parts, 4, &demand());
        assert_eq!((work.weight_bytes_per_token, work.kv_bytes_per_token), (150.0, 50.0));
        assert_eq!(work.macs_per_token, 100.0);
        assert_eq!((work.bytes_per_second, work.macs_per_second), (1200.0, 600.0));
    }

    #[test]
    fn a_share_is_that_of_the_reads_around_the_repetition() {
        // 800 bytes a second of 1600, then 1600 of 2000, between reads of 1900 and 2100.
        let parts = [part(1000, [1600.0; 2]), part(500, [1900.0, 2100.0])];
        let limits = CpuLimits::of(&parts, &demand()).unwrap();
        assert!((limits.read_share - (0.5 + 0.8) / 2.0).abs() < 1e-12, "{limits:?}");
        assert!((limits.mac_share - (0.4 + 0.8) / 2.0).abs() < 1e-12, "{limits:?}");
        assert_eq!(limits.bytes_per_second, 1800.0);
        assert!((limits.read_difference - 0.1).abs() < 1e-12 && (limits.mac_difference - 0.2).abs() < 1e-12);
        assert!(limits.unsteady, "0.2 is more than 0.15");
        let beyond = CpuLimits::of(
            &[Measured {
                limits: Some(Limits { read: [600.0; 2], products: [900.0; 2] }),
                ..part(1000, [0.0; 2])
            }],
            &demand(),
        );
        assert!(beyond.unwrap().unsteady, "800 bytes a second are no part of 600");
    }

    #[test]
    fn without_limits_there_is_no_share() {
        let without = Measured { limits: None, ..part(1000, [1.0; 2]) };
        assert_eq!(CpuLimits::of(&[part(1000, [1.0; 2]), without], &demand()), None);
    }
}
