//! A persistent team of threads for fork-join work with barriers.
//!
//! A job starts and ends without allocation, on the whole team or on its first threads. Idle threads spin briefly, then
//! sleep, and those that take no part in a job don't notice it.
#![allow(unsafe_code, reason = "workers borrow the job from the stack of the thread that waits for them")]

use std::any::Any;
use std::hint::spin_loop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

/// Pauses before a waiting thread yields or sleeps: some tens of microseconds.
const SPINS: u32 = if cfg!(miri) { 10 } else { 2000 };

/// Why a pool could not be made.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// The system refused a thread.
    #[error("can't start thread {index} of {count} for the CPU backend: {source}; ask for fewer threads")]
    Spawn {
        /// The thread, from 1.
        index: usize,
        /// Threads asked for.
        count: usize,
        /// The system's answer.
        source: std::io::Error,
    },
}

impl From<PoolError> for minfer_graph::BackendError {
    fn from(error: PoolError) -> Self {
        Self::Device { backend: crate::spec::NAME.to_owned(), what: error.to_string() }
    }
}

/// A thread's view of the job it takes part in.
pub struct Team<'a> {
    index: usize,
    count: usize,
    barrier: &'a Barrier,
}

impl Team<'_> {
    /// This thread, from 0; the thread that called [`ThreadPool::run`] is 0.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Threads that run the job.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Waits until every thread of the team has come here; what they wrote before is visible afterwards.
    ///
    /// # Panics
    /// If another thread of the team panicked.
    pub fn barrier(&self) {
        self.barrier.wait(self.count);
    }

    /// This thread's part of `0..len`, split evenly at multiples of `unit`.
    pub fn share(&self, len: usize, unit: usize) -> std::ops::Range<usize> {
        let units = len.div_ceil(unit);
        let cut = |i: usize| (units * i / self.count() * unit).min(len);
        cut(self.index)..cut(self.index + 1)
    }
}

/// The payload with which a thread leaves a barrier that can't complete any more.
struct Abandoned;

/// A reusable barrier: spins, then yields.
#[derive(Default)]
struct Barrier {
    arrived: AtomicUsize,
    generation: AtomicUsize,
    broken: AtomicBool,
}

impl Barrier {
    /// Waits for `count` threads.
    fn wait(&self, count: usize) {
        if count == 1 {
            return;
        }
        let generation = self.generation.load(Ordering::Relaxed);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == count {
            self.arrived.store(0, Ordering::Relaxed);
            self.generation.store(generation.wrapping_add(1), Ordering::Release);
            return;
        }
        spin_until(|| {
            self.generation.load(Ordering::Acquire) != generation || self.broken.load(Ordering::Relaxed)
        });
        if self.generation.load(Ordering::Acquire) == generation {
            resume_unwind(Box::new(Abandoned));
        }
    }

    fn reset(&self) {
        self.arrived.store(0, Ordering::Relaxed);
        self.broken.store(false, Ordering::Relaxed);
    }
}

/// Spins on `done`, then yields between checks.
fn spin_until(done: impl Fn() -> bool) {
    let mut spins = 0;
    while !done() {
        if spins < SPINS {
            spins += 1;
            spin_loop();
        } else {
            thread::yield_now();
        }
    }
}

/// A job on the stack of the thread that runs it.
struct Job<'a>(&'a (dyn Fn(&Team<'_>) + Sync));

/// What wakes one worker.
#[derive(Default)]
struct Call {
    /// Counts the jobs that the worker takes part in; a change starts one.
    epoch: AtomicUsize,
    /// Whether the worker sleeps, or is about to.
    sleeps: AtomicBool,
}

impl Call {
    /// Waits for a job after number `seen`.
    fn next_epoch(&self, seen: usize) -> usize {
        for _ in 0..SPINS {
            let epoch = self.epoch.load(Ordering::Acquire);
            if epoch != seen {
                return epoch;
            }
            spin_loop();
        }
        self.sleeps.store(true, Ordering::SeqCst);
        while self.epoch.load(Ordering::SeqCst) == seen {
            thread::park();
        }
        self.sleeps.store(false, Ordering::Relaxed);
        self.epoch.load(Ordering::Acquire)
    }
}

/// What the threads share.
struct Shared {
    /// By worker, from thread 1 on.
    calls: Box<[Call]>,
    /// The current job; valid while `running` is not 0. Null asks the workers to leave.
    job: AtomicPtr<Job<'static>>,
    /// Threads that take part in the job.
    count: AtomicUsize,
    /// Workers that still run the job.
    running: AtomicUsize,
    barrier: Barrier,
    /// The first panic of a job.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Runs the job as thread `index`, keeping a panic for the caller.
    fn take_part(&self, job: &Job<'_>, index: usize, count: usize) {
        let team = Team { index, count, barrier: &self.barrier };
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| (job.0)(&team))) {
            lock(&self.panic).get_or_insert(payload);
            self.barrier.broken.store(true, Ordering::Relaxed);
        }
    }

    fn work(&self, index: usize) {
        let mut epoch = 0;
        loop {
            epoch = self.calls[index - 1].next_epoch(epoch);
            let job = self.job.load(Ordering::Relaxed);
            if job.is_null() {
                return;
            }
            // SAFETY: `run` keeps the job alive until `running` is 0, which needs this thread's decrement.
            self.take_part(unsafe { &*job }, index, self.count.load(Ordering::Relaxed));
            self.running.fetch_sub(1, Ordering::Release);
        }
    }
}

/// Threads that run one job at a time, together with the thread that asks.
pub struct ThreadPool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

impl ThreadPool {
    /// A team of `count` threads (at least 1), the calling one included.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub fn new(count: usize) -> Result<Self, PoolError> {
        let count = count.max(1);
        let shared = Arc::new(Shared {
            calls: (1..count).map(|_| Call::default()).collect(),
            job: AtomicPtr::new(std::ptr::null_mut()),
            count: AtomicUsize::new(count),
            running: AtomicUsize::new(0),
            barrier: Barrier::default(),
            panic: Mutex::new(None),
        });
        let mut pool = Self { shared, workers: Vec::with_capacity(count - 1) };
        for index in 1..count {
            let shared = Arc::clone(&pool.shared);
            let worker = thread::Builder::new()
                .name(format!("minfer-cpu-{index}"))
                .spawn(move || shared.work(index))
                .map_err(|source| PoolError::Spawn { index, count, source })?;
            pool.workers.push(worker);
        }
        Ok(pool)
    }

    /// Threads of the team.
    pub fn count(&self) -> usize {
        self.shared.calls.len() + 1
    }

    /// Starts a job on the first `workers`, or ends them if it is null.
    fn start(&self, job: *mut Job<'static>, workers: usize) {
        let shared = &*self.shared;
        shared.running.store(workers, Ordering::Relaxed);
        shared.count.store(workers + 1, Ordering::Relaxed);
        shared.job.store(job, Ordering::Relaxed);
        for (call, worker) in shared.calls.iter().zip(&self.workers).take(workers) {
            call.epoch.fetch_add(1, Ordering::SeqCst);
            if call.sleeps.load(Ordering::SeqCst) {
                worker.thread().unpark();
            }
        }
    }

    /// Runs `job` on every thread of the team and waits for all of them.
    ///
    /// # Panics
    /// If the job panicked on any thread, with that thread's panic.
    pub fn run(&mut self, job: impl Fn(&Team<'_>) + Sync) {
        self.run_on(self.count(), job);
    }

    /// Runs `job` on the first `count` threads of the team (at least 1, at most all) and waits for them.
    ///
    /// # Panics
    /// As [`ThreadPool::run`].
    pub fn run_on(&mut self, count: usize, job: impl Fn(&Team<'_>) + Sync) {
        let count = count.clamp(1, self.count());
        let mut job = Job(&job);
        let shared = &*self.shared;
        if count > 1 {
            self.start((&raw mut job).cast(), count - 1);
        }
        shared.take_part(&job, 0, count);
        spin_until(|| shared.running.load(Ordering::Acquire) == 0);
        if shared.barrier.broken.load(Ordering::Relaxed) {
            shared.barrier.reset();
            let payload = lock(&shared.panic).take();
            resume_unwind(payload.unwrap_or_else(|| Box::new(Abandoned)));
        }
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.start(std::ptr::null_mut(), self.workers.len());
        for worker in self.workers.drain(..) {
            // A worker catches every panic of a job, so it ends normally.
            let _ = worker.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    const ROUNDS: u64 = if cfg!(miri) { 10 } else { 2000 };

    #[test]
    fn every_thread_runs_each_job_once() {
        for count in 1..=4 {
            let mut pool = ThreadPool::new(count).unwrap();
            let sum = AtomicU64::new(0);
            for round in 0..ROUNDS {
                pool.run(|team| {
                    assert_eq!(team.count(), count);
                    sum.fetch_add(round + team.index() as u64, Ordering::Relaxed);
                });
            }
            let n = count as u64;
            assert_eq!(sum.into_inner(), ROUNDS * (ROUNDS - 1) / 2 * n + ROUNDS * (n * (n - 1) / 2));
        }
    }

    #[test]
    fn part_of_a_team_runs_a_job_beside_sleeping_workers() {
        let mut pool = ThreadPool::new(4).unwrap();
        for round in 0..ROUNDS as usize {
            let count = round % 5;
            let seen: [AtomicUsize; 4] = Default::default();
            pool.run_on(count, |team| {
                assert_eq!(team.count(), count.max(1));
                team.barrier();
                seen[team.index()].fetch_add(1, Ordering::Relaxed);
            });
            let seen = seen.map(AtomicUsize::into_inner);
            assert_eq!(seen, std::array::from_fn(|index| usize::from(index < count.max(1))));
        }
    }

    #[test]
    fn barrier_orders_phases() {
        let mut pool = ThreadPool::new(3).unwrap();
        let cells: Vec<AtomicU64> = (0..3).map(|_| AtomicU64::new(0)).collect();
        pool.run(|team| {
            for round in 1..=ROUNDS {
                cells[team.index()].store(round, Ordering::Relaxed);
                team.barrier();
                assert!(cells.iter().all(|c| c.load(Ordering::Relaxed) == round));
                team.barrier();
            }
        });
    }

    #[test]
    fn panic_reaches_the_caller_and_the_pool_lives_on() {
        let mut pool = ThreadPool::new(3).unwrap();
        for bad in 0..3 {
            let job = AssertUnwindSafe(|| {
                pool.run(|team| {
                    if team.index() == bad {
                        resume_unwind(Box::new("boom"));
                    }
                    team.barrier();
                });
            });
            let payload = catch_unwind(job).unwrap_err();
            assert_eq!(payload.downcast_ref::<&str>(), Some(&"boom"));
            let hits = AtomicUsize::new(0);
            pool.run(|team| {
                team.barrier();
                hits.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(hits.into_inner(), 3);
        }
    }

    #[test]
    fn sleeping_workers_wake() {
        let mut pool = ThreadPool::new(2).unwrap();
        for _ in 0..3 {
            thread::sleep(std::time::Duration::from_millis(20));
            let hits = AtomicUsize::new(0);
            pool.run(|_| {
                hits.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(hits.into_inner(), 2);
        }
    }

    #[test]
    fn shares_cover_everything_once() {
        let mut pool = ThreadPool::new(3).unwrap();
        for (len, unit) in [(0, 16), (1, 16), (100, 16), (48, 16), (7, 1)] {
            let covered: Vec<AtomicUsize> = (0..len).map(|_| AtomicUsize::new(0)).collect();
            pool.run(|team| {
                let share = team.share(len, unit);
                assert!(share.start == len || share.start.is_multiple_of(unit));
                share.for_each(|i| {
                    covered[i].fetch_add(1, Ordering::Relaxed);
                });
            });
            assert!(covered.iter().all(|c| c.load(Ordering::Relaxed) == 1));
        }
    }
}
