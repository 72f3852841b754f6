//! How many threads of a team to run while other programs want processors.
//!
//! A team with static shares waits for its slowest thread, so one thread that waits for a processor costs more than one
//! thread less. The governor knows nothing of clocks and files: it turns samples into a number of threads.

use std::time::Duration;

/// Contended time after which threads are taken away: more than a task that wakes up for a moment.
const SUSTAINED: Duration = Duration::from_millis(30);
/// Time at fewer threads before more are tried, at first.
const FIRST_WAIT: Duration = Duration::from_millis(200);
/// The same after many vain tries, which at most cost about one part in a hundred.
const LONGEST_WAIT: Duration = Duration::from_millis(3200);
/// Quiet time after which a try has succeeded.
const PROVEN: Duration = Duration::from_secs(1);
/// Least part of the time for which threads that wait are worth a thread.
const LEAST_LOSS: f64 = 0.1;
/// Idle part of a processor that makes a try with it worth while.
const IDLE: f64 = 0.8;

/// What was seen while a team ran.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// Time that the team ran.
    pub(crate) wall: Duration,
    /// Time that its threads were ready but had no processor, summed over the threads.
    pub(crate) delay: Duration,
    /// Time that all processors of the machine have been idle so far, summed over them, if the system tells.
    pub(crate) idle: Option<Duration>,
}

/// Chooses the number of threads.
#[derive(Debug)]
pub(crate) struct Governor {
    /// Threads of the whole team.
    all: usize,
    active: usize,
    contended: Duration,
    /// Time since the number of threads changed, or since contention ended.
    quiet: Duration,
    /// Idle time at the start of the quiet time, and at the last sample.
    idle_before: Option<Duration>,
    idle: Option<Duration>,
    /// The number before a try that isn't proven yet.
    before: Option<usize>,
    wait: Duration,
    /// Threads that the next try adds.
    step: usize,
}

impl Governor {
    /// For a team of `all` threads, which all run at first.
    pub(crate) fn new(all: usize) -> Self {
        let all = all.max(1);
        Self {
            all,
            active: all,
            contended: Duration::ZERO,
            quiet: Duration::ZERO,
            idle_before: None,
            idle: None,
            before: None,
            wait: FIRST_WAIT,
            step: all,
        }
    }

    /// Threads of the whole team.
    pub(crate) fn all(&self) -> usize {
        self.all
    }

    /// Threads to run.
    pub(crate) fn active(&self) -> usize {
        self.active
    }

    /// Threads to run after a sample of what the chosen number did.
    pub(crate) fn decide(&mut self, sample: Sample) -> usize {
        let waiting = sample.delay.as_secs_f64() / sample.wall.as_secs_f64().max(f64::MIN_POSITIVE);
        let idle_before = std::mem::replace(&mut self.idle, sample.idle);
        // Each delay holds up the whole team, and a thread less costs a part of 1/active: most of that must be lost.
        let contended = waiting > (0.8 / self.active as f64).max(LEAST_LOSS);
        if contended && self.active > 1 {
            self.contended += sample.wall;
            self.quiet = Duration::ZERO;
            if self.contended >= SUSTAINED {
                self.lower(waiting);
            }
            return self.active;
        }
        self.contended = Duration::ZERO;
        if self.quiet.is_zero() {
            self.idle_before = idle_before;
        }
        self.quiet += sample.wall;
        if self.before.is_some() && self.quiet >= PROVEN {
            self.before = None;
            self.wait = FIRST_WAIT;
            self.step = self.all;
        }
        if self.active < self.all && self.before.is_none() && self.quiet >= self.wait {
            match self.step.min(self.idle_processors()) {
                // Those who hold them would only be pushed aside.
                0 => self.quiet = Duration::ZERO,
                step => {
                    self.before = Some(self.active);
                    self.set((self.active + step).min(self.all));
                }
            }
        }
        self.active
    }

    /// Processors that nobody has used since the quiet time began; no limit if the system doesn't tell.
    fn idle_processors(&self) -> usize {
        let (Some(before), Some(now)) = (self.idle_before, self.idle) else { return usize::MAX };
        let idle = now.saturating_sub(before).as_secs_f64() / self.quiet.as_secs_f64();
        (idle + 1.0 - IDLE) as usize
    }

    /// Takes threads away: those that a vain try added, else as many as wait on average.
    fn lower(&mut self, waiting: f64) {
        if let Some(before) = self.before.take() {
            self.wait = (self.wait * 2).min(LONGEST_WAIT);
            self.step = ((self.active - before) / 2).max(1);
            self.set(before);
        } else {
            let excess = (waiting.round() as usize).max(1);
            self.set(self.active.saturating_sub(excess).max(1));
        }
    }

    fn set(&mut self, active: usize) {
        self.active = active;
        self.contended = Duration::ZERO;
        self.quiet = Duration::ZERO;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(20);

    /// Feeds `ticks` samples in which `waiting(active)` threads wait on average; the numbers of threads chosen.
    fn feed(governor: &mut Governor, ticks: usize, waiting: impl Fn(usize) -> f64) -> Vec<usize> {
        let delay = |active| TICK.mul_f64(waiting(active));
        let tick = |_| governor.decide(Sample { wall: TICK, delay: delay(governor.active()), idle: None });
        (0..ticks).map(tick).collect()
    }

    /// The same with `busy` other processes on `cpus`, on a system that tells how long processors were idle.
    fn feed_telling(governor: &mut Governor, ticks: usize, cpus: usize, busy: usize) -> Vec<usize> {
        let mut idle = Duration::from_secs(1000);
        let tick = |_| {
            let active = governor.active();
            let free = cpus.saturating_sub(active + busy);
            idle += TICK.mul_f64(free as f64);
            let delay = TICK.mul_f64(crowd(cpus, busy)(active));
            governor.decide(Sample { wall: TICK, delay, idle: Some(idle) })
        };
        (0..ticks).map(tick).collect()
    }

    /// Threads that wait with `busy` other processes on `cpus`.
    fn crowd(cpus: usize, busy: usize) -> impl Fn(usize) -> f64 {
        move |active| (active + busy).saturating_sub(cpus) as f64
    }

    fn changes(of: &[usize]) -> usize {
        of.windows(2).filter(|pair| pair[0] != pair[1]).count()
    }

    #[test]
    fn one_busy_process_takes_one_thread_and_gives_it_back() {
        for all in [2, 4, 16] {
            let mut governor = Governor::new(all);
            assert_eq!(feed(&mut governor, 1, crowd(all, 1)), [all]);
            assert_eq!(feed(&mut governor, 1, crowd(all, 1)), [all - 1]);
            let beside = feed(&mut governor, 3000, crowd(all, 1));
            let full = beside.iter().filter(|&&active| active == all).count();
            assert!(full * 50 < beside.len(), "{full} ticks of {} with all {all}", beside.len());
            let after = feed(&mut governor, 200, crowd(all, 0));
            assert!(changes(&after) <= 1 && after.last() == Some(&all), "{after:?}");
        }
    }

    #[test]
    fn no_thread_is_tried_where_no_processor_is_idle() {
        for all in [2, 4, 16] {
            let mut governor = Governor::new(all);
            feed_telling(&mut governor, 2, all, 1);
            let beside = feed_telling(&mut governor, 3000, all, 1);
            assert!(beside.iter().all(|&active| active == all - 1));
            let after = feed_telling(&mut governor, 30, all, 0);
            assert!(changes(&after) == 1 && after.last() == Some(&all), "{after:?}");
        }
    }

    #[test]
    fn as_many_threads_are_tried_as_processors_are_idle() {
        let mut governor = Governor::new(16);
        feed_telling(&mut governor, 20, 16, 8);
        assert_eq!(governor.active(), 8);
        let fewer = feed_telling(&mut governor, 100, 16, 4);
        assert!(changes(&fewer) == 1 && fewer.last() == Some(&12), "{fewer:?}");
    }

    #[test]
    fn noise_and_a_short_task_change_nothing() {
        let mut governor = Governor::new(2);
        let quiet = feed(&mut governor, 1000, |_| 0.2);
        assert!(quiet.iter().all(|&active| active == 2));
        for _ in 0..50 {
            assert_eq!(feed(&mut governor, 1, |_| 1.0), [2]);
            assert_eq!(feed(&mut governor, 2, |_| 0.1), [2, 2]);
        }
    }

    #[test]
    fn a_process_that_comes_and_goes_does_not_make_it_flap() {
        let mut governor = Governor::new(2);
        let mut chosen = Vec::new();
        for _ in 0..50 {
            chosen.extend(feed(&mut governor, 15, crowd(2, 1)));
            chosen.extend(feed(&mut governor, 15, crowd(2, 0)));
        }
        // 30 s: were it to follow, there would be 100 changes.
        assert!(changes(&chosen) <= 40, "{}", changes(&chosen));
    }

    #[test]
    fn several_busy_processes_take_several_threads() {
        let mut governor = Governor::new(16);
        feed(&mut governor, 20, crowd(16, 8));
        assert_eq!(governor.active(), 8);
        let fewer = feed(&mut governor, 2000, crowd(16, 4));
        let settled = fewer.iter().rev().filter(|&&active| active == 12).count();
        assert!(settled * 10 > fewer.len() * 7, "{settled} of {}", fewer.len());
    }

    #[test]
    fn one_long_run_is_evidence_enough() {
        let second = Duration::from_secs(1);
        assert_eq!(Governor::new(2).decide(Sample { wall: second, delay: second, idle: None }), 1);
    }

    #[test]
    fn the_last_thread_stays() {
        for all in [0, 1, 3] {
            let mut governor = Governor::new(all);
            assert_eq!(feed(&mut governor, 100, |_| 9.0).iter().min(), Some(&1));
        }
    }
}
