//! Graph segments as programs: what [`prepare`] has checked and resolved, and the loop that runs it.
//!
//! A program is a list of steps. All threads walk the whole list in one fork-join; in each step a thread does its share
//! of the live rows, and waits for the others only where [`order`] found that it must. Shares never split a sum, so the
//! bits of a result depend neither on the number of threads nor on the number of rows.
//!
//! Safety rests on `prepare`: every pointer of a step covers its value at the full rung, results overlap no operand but
//! the one they replace, conflicting steps are separated by barriers, and indices are checked before the first step.
#![allow(unsafe_code, reason = "steps run kernels on raw pointers that several threads share")]

mod attention;
mod columns;
mod element;
mod gather;
mod halt;
mod heads;
mod matmul;
mod norm;
mod order;
mod places;
mod prepare;
mod rope;
pub(crate) mod scratch;
mod write;

pub(crate) use halt::Halt;
pub(crate) use places::{Places, bounds, outside};
pub(crate) use prepare::prepare;

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use minfer_graph::{BackendError, BatchCounts, BufId, NodeId};

use crate::kernels::{Kernels, ROW_UNIT};
use crate::pool::Team;
use crate::spec::NAME;
use crate::weights::Weight;
use order::LiveRows;

/// What one thread needs to know while it runs a step.
pub(crate) struct Run<'a> {
    kernels: &'static Kernels,
    team: &'a Team<'a>,
    /// By number; 0 when the run starts.
    counters: &'a [AtomicUsize],
    /// Rows that are computed; at least 1.
    live: usize,
}

/// The share of one thread in a step.
trait Work {
    /// Does it.
    ///
    /// # Safety
    /// The memory that the step was prepared with must exist; all threads of the team run the step, and nothing else
    /// uses that memory in a conflicting way meanwhile.
    unsafe fn run(&self, run: &Run<'_>);
}

/// One step of a program.
struct Step {
    /// Whether all threads must have finished the steps before.
    wait: bool,
    rows: LiveRows,
    work: StepWork,
}

/// What a step does.
enum StepWork {
    /// One thing.
    Whole(Box<dyn Work>),
    /// Several, some columns at a time.
    Group(columns::Group),
}

/// A column of ids or positions that steps use as row numbers.
struct Indices {
    node: NodeId,
    first: *const i32,
    rows: LiveRows,
    /// Rows that exist.
    limit: usize,
}

/// A prepared segment.
pub(crate) struct Program {
    steps: Vec<Step>,
    indices: Vec<Indices>,
    /// What threads of a step tell each other without a barrier.
    counters: Box<[AtomicUsize]>,
    /// Whether it computes so many rows that threads take parts of steps as they can.
    elastic: bool,
    /// Buffers that the steps point into.
    buffers: Vec<BufId>,
    /// Keeps the weights alive that the steps point into.
    _weights: Vec<Weight>,
}

// SAFETY: a program is plain data; its pointers are only followed in `run`, whose contract covers threads.
unsafe impl Send for Program {}
// SAFETY: as above.
unsafe impl Sync for Program {}

impl Program {
    /// Whether a step points into the buffer.
    pub(crate) fn uses(&self, id: BufId) -> bool {
        self.buffers.contains(&id)
    }

    /// Checks every id and position that the run will use as a row number.
    ///
    /// # Safety
    /// The program's buffers must exist and nobody may write them meanwhile.
    pub(crate) unsafe fn check_indices(&self, counts: BatchCounts) -> Result<(), BackendError> {
        for column in &self.indices {
            // SAFETY: `prepare` resolved the column at its full rung.
            let live = unsafe { std::slice::from_raw_parts(column.first, column.rows.count(counts)) };
            let beyond = |&i: &i32| usize::try_from(i).is_ok_and(|i| i >= column.limit);
            if let Some(index) = live.iter().copied().find(|i| beyond(i)) {
                let what = format!("{}: row {index} of {} was asked for", column.node, column.limit);
                return Err(BackendError::Device { backend: NAME.to_owned(), what });
            }
        }
        Ok(())
    }

    /// Whether a thread that waits for a processor holds up none of the others for long.
    pub(crate) fn is_elastic(&self) -> bool {
        self.elastic
    }

    /// Makes the program ready for a run; every run needs it anew.
    pub(crate) fn rewind(&self) {
        self.counters.iter().for_each(|counter| counter.store(0, Ordering::Relaxed));
    }

    /// One thread's share of the whole program, up to the step where `halt` ends it for all threads.
    ///
    /// # Safety
    /// [`Program::rewind`] was called, [`Program::check_indices`] has succeeded with the same counts, and the program's buffers must not be used
    /// by anything else until all threads of the team have returned.
    pub(crate) unsafe fn run(
        &self,
        kernels: &'static Kernels,
        team: &Team<'_>,
        counts: BatchCounts,
        halt: &Halt<'_>,
    ) {
        for (index, step) in self.steps.iter().enumerate() {
            if step.wait && !halt.barrier(team, index) {
                return;
            }
            let live = step.rows.count(counts);
            if live > 0 {
                // SAFETY: the caller's promise, and `prepare` put barriers between conflicting steps.
                unsafe {
                    let run = Run { kernels, team, counters: &self.counters, live };
                    match &step.work {
                        StepWork::Whole(work) => work.run(&run),
                        StepWork::Group(group) => group.run(&run),
                    }
                }
            }
        }
    }
}

#[cfg(test)]
impl Program {
    /// A program that panics on one thread while the others wait for it.
    pub(crate) fn panicking() -> Self {
        struct Panics;
        impl Work for Panics {
            unsafe fn run(&self, run: &Run<'_>) {
                if run.team.index() == 1 {
                    std::panic::resume_unwind(Box::new("boom"));
                }
                run.team.barrier();
            }
        }
        let rows = LiveRows { rows: minfer_graph::Rows::Fixed, shape: minfer_graph::Shape::new(1, 1) };
        let steps = vec![Step { wait: false, rows, work: StepWork::Whole(Box::new(Panics)) }];
        Self {
            steps,
            indices: Vec::new(),
            counters: Box::default(),
            elastic: false,
            buffers: Vec::new(),
            _weights: Vec::new(),
        }
    }

    /// How often all threads wait for each other.
    pub(crate) fn barriers(&self) -> usize {
        self.steps.iter().filter(|step| step.wait).count()
    }
}

impl Run<'_> {
    /// This thread's rows.
    fn rows(&self) -> Range<usize> {
        self.team.share(self.live, 1)
    }

    /// This thread's columns.
    fn cols(&self, cols: usize) -> Range<usize> {
        self.team.share(cols, ROW_UNIT)
    }

    /// Work items that no other thread has taken yet, one after the other.
    fn take(&self, counter: usize, count: usize) -> impl Iterator<Item = usize> {
        let taken = &self.counters[counter];
        std::iter::repeat_with(|| taken.fetch_add(1, Ordering::Relaxed)).take_while(move |&item| item < count)
    }

    /// This thread's work items, dealt out in turn.
    fn items(&self, count: usize) -> impl Iterator<Item = usize> + use<> {
        (self.team.index()..count).step_by(self.team.count())
    }
}

/// f32 rows somewhere in a buffer.
#[derive(Clone, Copy)]
struct Floats {
    first: *mut f32,
    cols: usize,
}

impl Floats {
    /// A row.
    ///
    /// # Safety
    /// The row must exist, and nobody may write it during `'a`.
    unsafe fn row<'a>(self, row: usize) -> &'a [f32] {
        // SAFETY: the caller's promise.
        unsafe { self.part(row, 0..self.cols) }
    }

    /// A row to write.
    ///
    /// # Safety
    /// The row must exist, and nobody else may use it during `'a`.
    unsafe fn row_mut<'a>(self, row: usize) -> &'a mut [f32] {
        // SAFETY: the caller's promise.
        unsafe { self.part_mut(row, 0..self.cols) }
    }

    /// Some columns of a row.
    ///
    /// # Safety
    /// As for [`Floats::row`].
    unsafe fn part<'a>(self, row: usize, cols: Range<usize>) -> &'a [f32] {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts(self.first.add(row * self.cols + cols.start), cols.len()) }
    }

    /// Some columns of a row to write.
    ///
    /// # Safety
    /// As for [`Floats::row_mut`].
    unsafe fn part_mut<'a>(self, row: usize, cols: Range<usize>) -> &'a mut [f32] {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.first.add(row * self.cols + cols.start), cols.len()) }
    }
}
