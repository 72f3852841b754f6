//! How all threads of a team stop at the same step.

use std::sync::atomic::{AtomicUsize, Ordering};

use minfer_graph::CancelFlag;

use crate::pool::Team;

/// Where a run ends before its last step. Threads that asked the flag themselves could see it at different steps, and
/// wait for each other for ever.
pub(crate) struct Halt<'a> {
    cancel: &'a CancelFlag,
    /// The step that none of the team runs any more.
    at: AtomicUsize,
}

impl<'a> Halt<'a> {
    /// A run that ends early once `cancel` is set.
    pub(crate) fn new(cancel: &'a CancelFlag) -> Self {
        Self { cancel, at: AtomicUsize::new(usize::MAX) }
    }

    /// A barrier in front of `step`; false if the run ends here. One thread decides for all of them, before they meet: one
    /// that is still on its way from an earlier barrier sees that a later step is meant.
    pub(super) fn barrier(&self, team: &Team<'_>, step: usize) -> bool {
        if team.index() == 0 && self.cancel.is_cancelled() {
            self.at.store(step, Ordering::Relaxed);
        }
        team.barrier();
        self.at.load(Ordering::Relaxed) > step
    }

    /// Whether the run ended early.
    pub(crate) fn was_cancelled(&self) -> bool {
        self.at.load(Ordering::Relaxed) != usize::MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::ThreadPool;

    #[test]
    fn all_threads_stop_at_the_same_step() {
        let rounds = if cfg!(miri) { 3 } else { 30 };
        let mut pool = ThreadPool::new(3).unwrap();
        for last in 0..rounds {
            let cancel = CancelFlag::new();
            let halt = Halt::new(&cancel);
            let done: [AtomicUsize; 3] = Default::default();
            pool.run(|team| {
                for step in 0.. {
                    if team.index() == last % 3 && step == last {
                        cancel.cancel();
                    }
                    if !halt.barrier(team, step) {
                        break;
                    }
                    done[team.index()].store(step + 1, Ordering::Relaxed);
                }
            });
            let done = done.map(AtomicUsize::into_inner);
            assert!(halt.was_cancelled() && done == [done[0]; 3] && done[0] <= last + 1, "{done:?}");
        }
    }
}
