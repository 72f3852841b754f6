//! Samples for the governor: how long the threads of a team waited for a processor, as Linux counts it.
//!
//! Elsewhere, and where the system doesn't tell, there are no samples, and all threads run always. Nothing here allocates
//! after [`Watch::new`].

use std::fs::File;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use crate::governor::{Governor, Sample};
use crate::pool::ThreadPool;

/// Least time of runs in a sample.
const WINDOW: Duration = Duration::from_millis(10);
/// Time between two runs in which the threads did something else than run.
const PAUSE: Duration = Duration::from_millis(10);
/// A thread's own times: nanoseconds run, nanoseconds ready without a processor, turns.
const TIMES: &str = "/proc/thread-self/schedstat";
/// Seconds since the start of the system, and seconds that processors were idle, summed over them.
const IDLE: &str = "/proc/uptime";

/// Chooses the threads of each run.
pub(crate) struct Watch {
    governor: Governor,
    /// The files of the workers; empty if there is nothing to choose, or nothing to choose by.
    workers: Vec<File>,
    /// The file of the thread that last asked for a run.
    caller: Option<(ThreadId, File)>,
    /// Where the system tells how long processors were idle.
    idle: Option<File>,
    window: Option<Window>,
}

/// A sample in the making.
struct Window {
    /// Threads of its runs.
    threads: usize,
    start: Instant,
    /// What the threads had waited by then.
    delay: Duration,
    /// End of the last run.
    end: Instant,
}

impl Watch {
    /// Asks every thread of `pool` for its file.
    pub(crate) fn new(pool: &mut ThreadPool) -> Self {
        let files: Vec<Mutex<Option<File>>> = (0..pool.count()).map(|_| Mutex::default()).collect();
        pool.run(|team| {
            // The name means the thread that opens it, the open file that thread from then on.
            let file = File::open(TIMES).ok();
            *files[team.index()].lock().unwrap_or_else(PoisonError::into_inner) = file;
        });
        let workers = files.into_iter().skip(1).map(|file| file.into_inner().unwrap_or_default());
        let workers = workers.collect::<Option<Vec<_>>>().unwrap_or_default();
        let idle = File::open(IDLE).ok();
        Self { governor: Governor::new(pool.count()), workers, caller: None, idle, window: None }
    }

    /// Threads for the run that starts now: all of them if the run is `elastic`, so that one without a processor holds up
    /// none of the others.
    pub(crate) fn before_run(&mut self, elastic: bool) -> usize {
        let threads = if elastic { self.governor.all() } else { self.governor.active() };
        if !self.workers.is_empty() {
            let now = Instant::now();
            self.window.take_if(|w| w.threads != threads || now.duration_since(w.end) > PAUSE);
            if self.window.is_none() {
                self.open(now, threads);
            }
        }
        threads
    }

    /// Notes the end of the run that [`Watch::before_run`] announced.
    pub(crate) fn after_run(&mut self) {
        let Some(window) = &mut self.window else { return };
        window.end = Instant::now();
        let (end, wall, threads) = (window.end, window.end - window.start, window.threads);
        if wall < WINDOW {
            return;
        }
        let before = window.delay;
        self.open(end, threads);
        if let Some(next) = &self.window {
            let active = self.governor.active();
            // What more threads than were chosen do says nothing of the choice.
            if threads != active {
                return;
            }
            let delay = next.delay.saturating_sub(before);
            if self.governor.decide(Sample { wall, delay, idle: self.idle() }) != active {
                // Threads that wake up or leave are no sign of anything.
                self.window = None;
            }
        }
    }

    fn open(&mut self, now: Instant, threads: usize) {
        self.window = self.delay().map(|delay| Window { threads, start: now, delay, end: now });
    }

    /// Time that processors have been idle so far.
    fn idle(&self) -> Option<Duration> {
        let mut text = [0; 80];
        Duration::try_from_secs_f64(second_number(read(self.idle.as_ref()?, &mut text)?)?).ok()
    }

    /// Time that all threads, the calling one among them, have waited for a processor so far.
    fn delay(&mut self) -> Option<Duration> {
        let caller = thread::current().id();
        if self.caller.as_ref().is_none_or(|(id, _)| *id != caller) {
            self.caller = Some((caller, File::open(TIMES).ok()?));
        }
        let own = self.caller.as_ref().map(|(_, file)| file);
        self.workers.iter().chain(own).map(delay_of).sum()
    }
}

/// Time that one thread has waited for a processor so far.
fn delay_of(file: &File) -> Option<Duration> {
    let mut text = [0; 80];
    second_number(read(file, &mut text)?).map(Duration::from_nanos)
}

/// The start of a file.
#[cfg(unix)]
fn read<'a>(file: &File, text: &'a mut [u8]) -> Option<&'a [u8]> {
    let len = std::os::unix::fs::FileExt::read_at(file, text, 0).ok()?;
    text.get(..len)
}

/// No system without such files tells.
#[cfg(not(unix))]
fn read<'a>(_: &File, _: &'a mut [u8]) -> Option<&'a [u8]> {
    None
}

/// The second number of a file.
fn second_number<T: FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_number_counts() {
        assert_eq!(second_number(b"353736042 646112618 89\n"), Some(646_112_618_u64));
        assert_eq!(second_number(b"80112.88 140113.08\n"), Some(140_113.08));
        for odd in [&b""[..], b"12", b"12 x 3", b"12 -1 3", b"\xff\xff 1 2"] {
            assert_eq!(second_number::<u64>(odd), None);
        }
    }

    #[test]
    fn a_team_of_one_is_never_watched() {
        let mut watch = Watch::new(&mut ThreadPool::new(1).unwrap());
        assert_eq!(watch.before_run(false), 1);
        watch.after_run();
        assert!(watch.window.is_none() && watch.caller.is_none());
    }

    #[test]
    #[cfg_attr(not(target_os = "linux"), ignore = "no such files")]
    #[cfg_attr(miri, ignore = "reads the system's files")]
    fn a_window_closes_after_its_time() {
        let mut pool = ThreadPool::new(2).unwrap();
        let mut watch = Watch::new(&mut pool);
        if watch.workers.is_empty() {
            return; // A container may hide the files.
        }
        let start = Instant::now();
        pool.run_on(watch.before_run(false), |_| thread::sleep(Duration::from_millis(1)));
        watch.after_run();
        assert!(watch.window.as_ref().is_some_and(|w| start.elapsed() > WINDOW || w.end > w.start));
        pool.run_on(watch.before_run(false), |_| thread::sleep(WINDOW));
        watch.after_run();
        // A new one has begun, unless the number of threads changed.
        assert!(watch.window.as_ref().is_none_or(|w| w.end == w.start));
    }
}
