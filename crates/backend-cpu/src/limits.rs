//! What the processor does at best: measured with the threads and the instructions that kernels run on.

use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::kernels::Kernels;
use crate::pool::ThreadPool;

/// A measurement takes at least so long, and less than four times as long with what leads up to it.
const WINDOW: Duration = Duration::from_millis(20);
/// Rounds of the loop of products that take no time worth measuring.
const FEW_ROUNDS: usize = 1 << 4;
/// Most rounds that the loop takes.
const MOST_ROUNDS: usize = 1 << 24;
/// Bytes of a part that a thread reads from: whole lines.
const UNIT: usize = 64;

/// Bytes a second when all threads read their share of each of `parts`, over and over; `None` without bytes.
pub(crate) fn read_rate(pool: &mut ThreadPool, kernels: &Kernels, parts: &[&[u8]]) -> Option<f64> {
    let bytes: usize = parts.iter().map(|part| part.len()).sum();
    if bytes == 0 {
        return None;
    }
    let rate = rate_of(1, usize::MAX, |times| {
        pool.run(|team| {
            for _ in 0..times {
                for part in parts {
                    black_box(kernels.read_through(&part[team.share(part.len(), UNIT)]));
                }
            }
        });
        times as f64 * bytes as f64
    });
    Some(rate)
}

/// Multiplications of bytes a second when all threads do nothing else.
pub(crate) fn product_rate(pool: &mut ThreadPool, kernels: &Kernels) -> f64 {
    let a_round = pool.count() as f64 * kernels.products(1) as f64;
    rate_of(FEW_ROUNDS, MOST_ROUNDS, |times| {
        pool.run(|_| {
            black_box(kernels.products(times));
        });
        a_round * times as f64
    })
}

/// How much `work` does in a second: in twice as many rounds each time, until they fill the window.
fn rate_of(few: usize, most: usize, mut work: impl FnMut(usize) -> f64) -> f64 {
    let mut times = few;
    loop {
        let start = Instant::now();
        let done = work(times);
        let took = start.elapsed();
        if took >= WINDOW || times >= most {
            return done / took.as_secs_f64().max(f64::MIN_POSITIVE);
        }
        times = times.saturating_mul(2).min(most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_double_until_there_are_most_of_them() {
        let mut rounds = Vec::new();
        let rate = rate_of(3, 20, |times| {
            rounds.push(times);
            1.0
        });
        assert_eq!(rounds, [3, 6, 12, 20]);
        assert!(rate > 0.0);
    }

    #[test]
    fn nothing_has_no_rate() {
        let mut pool = ThreadPool::new(2).unwrap();
        assert_eq!(read_rate(&mut pool, Kernels::detect(), &[&[], &[]]), None);
        assert!(read_rate(&mut pool, Kernels::detect(), &[&[1; 100], &[]]) > Some(0.0));
    }
}
