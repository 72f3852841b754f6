//! Runs graphs: what the engine talks to.

use std::collections::BTreeSet;

use crate::alloc::GraphAllocator;
use crate::backend::{Backend, BackendId, BatchCounts, Binding, BufRef, Segment, SegmentId, WeightBytes};
use crate::cache::{CacheStats, GraphCache, GraphParams, Rung};
use crate::cancel::CancelFlag;
use crate::demand::Reads;
use crate::error::{Error, Result};
use crate::ir::{ComputeGraph, GraphError, WeightId};
use crate::mapping::Mapping;
use crate::plan::MemoryPlan;
use crate::report::MemoryReport;
use crate::scheduler::{Assignment, BackendScheduler, window_of};

/// A graph that is ready to run whenever it is the mapped one.
#[derive(Debug)]
struct Prepared {
    graph: ComputeGraph,
    assignment: Assignment,
    mapping: Mapping,
    /// By span.
    segments: Vec<SegmentId>,
}

/// Backends with all their memory, and the graphs that run on them.
///
/// [`new`](Self::new) creates everything that the plan says; [`run`](Self::run) allocates nothing on any backend, and
/// nothing on the heap when it runs the same parameters again.
#[derive(Debug)]
pub struct Runner {
    alloc: GraphAllocator,
    plan: MemoryPlan,
    registered: BTreeSet<(WeightId, BackendId)>,
    cache: GraphCache<Prepared>,
    /// Whether the front of the cache is the graph that the buffers are mapped for.
    front_is_mapped: bool,
    /// A value on its way between two backends.
    bounce: Vec<u8>,
    /// What the last run held, once it has ended well.
    done: Option<BatchCounts>,
}

impl Runner {
    /// Admits the plan and creates its buffers. `backends` are those that were planned for, in the same order.
    ///
    /// A plan that doesn't fit its budgets is refused before anything is allocated. Panics if the backends aren't as many
    /// as the plan's.
    pub fn new(backends: Vec<Box<dyn Backend>>, plan: MemoryPlan) -> Result<Self> {
        assert_eq!(backends.len(), plan.backends().len(), "the plan is for these backends");
        plan.admit()?;
        let budgets = plan.backends().iter().map(|planned| planned.budget);
        let mut alloc = GraphAllocator::new(backends.into_iter().zip(budgets).collect());
        alloc.commit(&plan)?;
        let bounce_len = plan.largest_crossing().to_usize();
        let bounce = vec![0; bounce_len.ok_or_else(|| Error::size("the copy between backends"))?];
        Ok(Self {
            alloc,
            plan,
            registered: BTreeSet::new(),
            cache: GraphCache::default(),
            front_is_mapped: false,
            bounce,
            done: None,
        })
    }

    /// Makes a weight available wherever the plan's graphs read it.
    pub fn register_weight(&mut self, id: WeightId, data: &WeightBytes) -> Result<()> {
        let Some(decl) = self.plan.scheduler().weights().get(id.index()) else {
            return Err(Error::Weight { id, what: "unknown to the plan" });
        };
        for home in self.plan.weight_homes(id) {
            if self.registered.contains(&(id, home)) {
                return Err(Error::Weight { id, what: "registered already" });
            }
            self.alloc.register_weight(home, id, decl, data.clone())?;
            self.registered.insert((id, home));
        }
        Ok(())
    }

    /// Compares the plan with what was registered (rule O6): every weight where the plan's graphs read it, and on every
    /// backend the bytes that were planned, as the backend itself counts them.
    pub fn verify_weights(&self) -> Result<()> {
        for index in 0..self.plan.scheduler().weights().len() {
            let id = WeightId::new(index);
            if self.plan.weight_homes(id).any(|home| !self.registered.contains(&(id, home))) {
                return Err(Error::Weight { id, what: "not registered where the plan has it" });
            }
        }
        for (id, planned) in self.alloc.ids().zip(self.plan.backends()) {
            let (expected, found) = (planned.weights.total(), self.alloc.backend(id).weights_bytes());
            if expected != found {
                let what = format!("the weights on {}", planned.name);
                return Err(Error::Length { what, expected: expected.get(), found: found.get() });
            }
        }
        Ok(())
    }

    /// Runs the graph of `params`, built by `build` unless the cache holds it. `fill` has the data of every input by name,
    /// exactly as long as the input at its rung; `counts` says how much of the rung is there. Once
    /// `cancel` is set, a backend may end the run with [`BackendError::Cancelled`](crate::BackendError::Cancelled).
    pub fn run(
        &mut self,
        params: &GraphParams,
        build: impl FnOnce() -> std::result::Result<ComputeGraph, GraphError>,
        fill: &[(&str, &[u8])],
        counts: BatchCounts,
        cancel: &CancelFlag,
    ) -> Result<()> {
        self.done = None;
        check_counts(params.rung, counts)?;
        let (expected, found) = (self.plan.scheduler().offload().gpu_layers, params.cparams.gpu_layers);
        if expected != found {
            return Err(Error::Offload { expected, found });
        }
        self.map(params, build)?;
        let prepared = self.cache.front().expect("a graph was just mapped");
        fill_inputs(&mut self.alloc, prepared, fill)?;
        execute(&mut self.alloc, prepared, counts, cancel, &mut self.bounce)?;
        self.done = Some(counts);
        Ok(())
    }

    /// Reads the start of an output of the last run, up to its live rows. A run that failed has no outputs.
    pub fn read_output(&self, index: usize, out: &mut [u8]) -> Result<()> {
        let done = self.done.zip(self.cache.front());
        let count = done.map_or(0, |(_, prepared)| prepared.graph.outputs().len());
        let Some((counts, prepared)) = done.filter(|_| index < count) else {
            return Err(Error::Output { index, count });
        };
        let node = prepared.graph.node(prepared.graph.outputs()[index]);
        let window = window_of(node, prepared.mapping.outputs()[index], counts);
        if out.len() as u64 > window.len.get() {
            return Err(Error::Length {
                what: format!("output {index}"),
                expected: window.len.get(),
                found: out.len() as u64,
            });
        }
        Ok(self.alloc.backend(window.backend).read_host_window(window, out)?)
    }

    /// What a backend holds.
    pub fn memory_report(&self, backend: BackendId) -> MemoryReport {
        self.alloc.memory_report(backend)
    }

    /// Bytes a second of a plain read of what `reads` names on a backend: see [`Backend::measure_read`].
    pub fn measure_read(&mut self, backend: BackendId, reads: &Reads) -> Result<Option<f64>> {
        let here = |id: &&WeightId| self.registered.contains(&(**id, backend));
        let weights = reads.weights.iter().filter(here).map(|&id| Binding::Weight(id));
        let states = reads.states.iter().filter_map(|(&id, rows)| {
            let (place, decl) = (self.alloc.state(id)?, self.plan.scheduler().states().get(id.index())?);
            let row = decl.dtype.row_bytes(decl.shape.cols)?;
            let offset = place.offset.checked_add(row.checked_mul(rows.start as u64)?)?;
            let place = BufRef { offset, len: row.checked_mul(rows.len() as u64)?, ..place };
            (place.backend == backend).then_some(Binding::Buffer(place))
        });
        let places: Vec<Binding> = weights.chain(states).collect();
        Ok(self.alloc.backend_mut(backend).measure_read(&places)?)
    }

    /// Multiplications a second of a backend: see [`Backend::measure_products`].
    pub fn measure_products(&mut self, backend: BackendId) -> Result<Option<f64>> {
        Ok(self.alloc.backend_mut(backend).measure_products()?)
    }

    /// What was planned.
    pub fn plan(&self) -> &MemoryPlan {
        &self.plan
    }

    /// Who owns the backends.
    pub fn allocator(&self) -> &GraphAllocator {
        &self.alloc
    }

    /// How often graphs were built and found again.
    pub fn stats(&self) -> CacheStats {
        self.cache.stats()
    }

    /// Makes the graph of `params` the front of the cache and the mapped one.
    fn map(
        &mut self,
        params: &GraphParams,
        build: impl FnOnce() -> std::result::Result<ComputeGraph, GraphError>,
    ) -> Result<()> {
        let was_front = self.front_is_mapped && self.cache.front_params() == Some(params);
        let found = self.cache.try_reuse(params);
        if found && was_front {
            return Ok(());
        }
        self.front_is_mapped = false;
        if found {
            self.remap()?;
        } else {
            let prepared = self.prepare(build()?)?;
            if let Some(evicted) = self.cache.insert(*params, prepared) {
                release_segments(&mut self.alloc, &evicted);
            }
        }
        self.front_is_mapped = true;
        Ok(())
    }

    fn prepare(&mut self, graph: ComputeGraph) -> Result<Prepared> {
        let assignment = self.plan.scheduler().assign_backends(&self.alloc, &graph)?;
        let mut read = BackendScheduler::weights_read(&graph, &assignment);
        if let Some((id, _)) = read.find(|weight| !self.registered.contains(weight)) {
            return Err(Error::Weight { id, what: "not registered where it is read" });
        }
        drop(read);
        let mapping = self.alloc.alloc_graph(&graph, &assignment)?;
        let mut prepared = Prepared { graph, assignment, mapping, segments: Vec::new() };
        prepare_segments(&mut self.alloc, &mut prepared)?;
        Ok(prepared)
    }

    /// Maps the front again. The same topology gets the same slots (rule A9), so what the backends prepared still holds.
    fn remap(&mut self) -> Result<()> {
        let prepared = self.cache.front().expect("a graph was just found");
        let mapping = self.alloc.alloc_graph(&prepared.graph, &prepared.assignment)?;
        debug_assert_eq!(mapping, prepared.mapping, "a rebuild moves no slot");
        Ok(())
    }
}

fn check_counts(rung: Rung, counts: BatchCounts) -> Result<()> {
    let pairs = [("tokens", counts.tokens, rung.tokens), ("outputs", counts.outputs, rung.outputs)];
    match pairs.into_iter().find(|(_, found, rung)| found > rung) {
        Some((what, found, rung)) => Err(Error::Counts { what, found, rung }),
        None => Ok(()),
    }
}

/// Prepares all spans, or none.
fn prepare_segments(alloc: &mut GraphAllocator, prepared: &mut Prepared) -> Result<()> {
    prepared.segments.clear();
    for span in prepared.assignment.spans() {
        let segment = Segment {
            graph: &prepared.graph,
            nodes: &span.nodes,
            bindings: prepared.mapping.bindings(span.backend),
            scratch: prepared.mapping.scratch(span.backend),
        };
        match alloc.backend_mut(span.backend).prepare(segment) {
            Ok(id) => prepared.segments.push(id),
            Err(error) => {
                release_segments(alloc, prepared);
                prepared.segments.clear();
                return Err(error.into());
            }
        }
    }
    Ok(())
}

fn release_segments(alloc: &mut GraphAllocator, prepared: &Prepared) {
    for (span, &segment) in prepared.assignment.spans().iter().zip(&prepared.segments) {
        alloc.backend_mut(span.backend).release(segment);
    }
}

fn fill_inputs(alloc: &mut GraphAllocator, prepared: &Prepared, fill: &[(&str, &[u8])]) -> Result<()> {
    let inputs = prepared.graph.inputs();
    if let Some((name, _)) = fill.iter().find(|(name, _)| inputs.iter().all(|(n, _)| n != name)) {
        return Err(Error::Input { name: (*name).to_owned(), what: "the graph has no such input" });
    }
    for ((name, _), places) in inputs.iter().zip(prepared.mapping.inputs()) {
        let Some((_, data)) = fill.iter().find(|(n, _)| n == name) else {
            return Err(Error::Input { name: name.clone(), what: "not filled" });
        };
        places.iter().try_for_each(|&place| alloc.fill_input(name, place, data))?;
    }
    Ok(())
}

/// Runs the spans in order; what crosses is copied out as soon as its span has run.
fn execute(
    alloc: &mut GraphAllocator,
    prepared: &Prepared,
    counts: BatchCounts,
    cancel: &CancelFlag,
    bounce: &mut [u8],
) -> Result<()> {
    let mut crossings = prepared.mapping.crossings().iter().peekable();
    for (index, (span, &segment)) in prepared.assignment.spans().iter().zip(&prepared.segments).enumerate() {
        alloc.backend_mut(span.backend).execute(segment, counts, cancel)?;
        while let Some(crossing) = crossings.next_if(|crossing| crossing.span == index) {
            let node = prepared.graph.node(crossing.node);
            let (from, to) = (window_of(node, crossing.from, counts), window_of(node, crossing.to, counts));
            copy(alloc, from, to, bounce)?;
        }
    }
    Ok(())
}

fn copy(alloc: &mut GraphAllocator, from: BufRef, to: BufRef, bounce: &mut [u8]) -> Result<()> {
    let len = from.len.to_usize().filter(|&len| len <= bounce.len());
    let bytes = &mut bounce[..len.ok_or_else(|| Error::size("a crossing that was not planned"))?];
    alloc.backend(from.backend).read_host_window(from, bytes)?;
    Ok(alloc.backend_mut(to.backend).write_host_window(to, bytes)?)
}
