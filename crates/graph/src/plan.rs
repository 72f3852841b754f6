//! The memory plan (rules B2, B4): the exact bytes of every category, before anything is allocated.
//!
//! It isn't computed beside the allocator but by it: the same walk runs over the graphs of all rungs, on backends that
//! only count. What the plan says is therefore what [`GraphAllocator::commit`] creates and what the ledger is charged.

use std::collections::BTreeSet;
use std::sync::Arc;

use minfer_tensor::Bytes;

use crate::alloc::GraphAllocator;
use crate::allocplan::Budget;
use crate::backend::{Backend, BackendId, DeviceSpec, WeightCharge};
use crate::dry::DryBackend;
use crate::error::{Error, Result};
use crate::ir::{ComputeGraph, StateDecl, StateId, WeightDecl, WeightId};
use crate::ledger::{BudgetExceeded, Category, Charges, Ledger};
use crate::offload::OffloadPlan;
use crate::scheduler::BackendScheduler;

/// Everything that the bytes of a session follow from.
pub struct PlanRequest<'a> {
    /// Descriptions of the backends, the CPU last, each with its budget.
    pub backends: &'a [(Arc<dyn DeviceSpec>, Budget)],
    /// Which blocks go to the device.
    pub offload: OffloadPlan,
    /// The weights of the model, by [`WeightId`].
    pub weights: &'a [WeightDecl],
    /// Whether a weight's bytes are pages of a file, by [`WeightId`].
    pub mapped: &'a [bool],
    /// What the caller itself will hold on the host, charged to the CPU: a bound.
    pub host: Bytes,
    /// The persistent regions, by [`StateId`].
    pub states: &'a [StateDecl],
    /// The graphs of all rungs.
    pub graphs: &'a [ComputeGraph],
}

/// What one backend will be charged.
#[derive(Clone, Debug, PartialEq)]
pub struct BackendPlan {
    /// Name of the backend.
    pub name: String,
    /// What it may be charged.
    pub budget: Budget,
    /// Weights that its nodes read.
    pub weights: WeightCharge,
    /// Keys and values.
    pub kv: Bytes,
    /// Pool buffers: class and number, the most that any graph holds at once.
    pub classes: Vec<(Bytes, usize)>,
    /// Staging buffers, by order of crossing.
    pub staging: Vec<Bytes>,
    /// Working memory: the largest node of all graphs.
    pub scratch: Bytes,
    /// What the backend takes for itself; nothing if it runs nothing.
    pub fixed: Bytes,
    /// What the session itself holds on the host.
    pub host: Bytes,
    /// Whether its memory is the host's.
    pub unified: bool,
}

impl BackendPlan {
    /// Bytes by category; saturates.
    pub fn charges(&self) -> Charges {
        let class = |&(class, n): &(Bytes, usize)| class.checked_mul(n as u64).unwrap_or(Bytes::MAX);
        let pool = self.classes.iter().map(class).sum();
        let parts = [
            (Category::Kv, self.kv),
            (Category::Pool, pool),
            (Category::Staging, self.staging.iter().copied().sum()),
            (Category::Scratch, self.scratch.saturating_add(self.fixed)),
            (Category::Host, self.host),
        ];
        // Each category is named once, so nothing adds up.
        let add =
            |sum: Charges, (category, bytes)| sum.checked_add(Charges::of(category, bytes)).unwrap_or(sum);
        parts.into_iter().fold(self.weights.into(), add)
    }
}

/// The bytes of every category on every backend, and where each weight and each state goes.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryPlan {
    scheduler: BackendScheduler,
    weight_homes: BTreeSet<(WeightId, BackendId)>,
    backends: Vec<BackendPlan>,
    largest_crossing: Bytes,
}

impl MemoryPlan {
    /// Plans a session. Pure: touches no device and reads no weight.
    ///
    /// Fails on an operation without a kernel and on sizes beyond 64 bits; whether the plan fits is
    /// [`admit`](Self::admit)'s question.
    /// Panics if a graph names a weight or a state that the request doesn't.
    pub fn resolve(request: &PlanRequest<'_>) -> Result<Self> {
        let dry = |(spec, _): &(Arc<dyn DeviceSpec>, Budget)| {
            (Box::new(DryBackend::new(Arc::clone(spec))) as Box<dyn Backend>, Budget::Unbounded)
        };
        let mut alloc = GraphAllocator::new(request.backends.iter().map(dry).collect());
        let PlanRequest { offload, weights, states, graphs, .. } = *request;
        let scheduler = BackendScheduler::new(&alloc, offload, weights, states, graphs);
        for (index, decl) in states.iter().enumerate() {
            let id = StateId::new(index);
            alloc.create_state(scheduler.state_home(id), id, decl)?;
        }
        let mut weight_homes = BTreeSet::new();
        let mut busy = BTreeSet::new();
        let mut largest_crossing = Bytes::ZERO;
        for graph in graphs {
            let assignment = scheduler.assign_backends(&alloc, graph)?;
            let mapping = alloc.alloc_graph(graph, &assignment)?;
            weight_homes.extend(BackendScheduler::weights_read(graph, &assignment));
            busy.extend(assignment.spans().iter().map(|span| span.backend));
            let crossings = mapping.crossings().iter().map(|crossing| crossing.to.len);
            largest_crossing = crossings.fold(largest_crossing, Bytes::max);
        }
        let host = request.host.checked_add(largest_crossing);
        alloc.charge_host(alloc.cpu(), host.ok_or_else(|| Error::size("what the host holds"))?)?;
        let mut backends = Vec::with_capacity(request.backends.len());
        for (id, (_, budget)) in alloc.ids().zip(request.backends) {
            let homes = weight_homes.iter().filter(|(_, home)| *home == id);
            let charge = homes
                .map(|(w, _)| alloc.weight_charge(id, &weights[w.index()], request.mapped[w.index()]))
                .try_fold(WeightCharge::default(), WeightCharge::checked_add)
                .ok_or_else(|| Error::size("the weights"))?;
            let planned = BackendPlan::of(&alloc, id, *budget, charge);
            let fixed = if busy.contains(&id) { planned.fixed } else { Bytes::ZERO };
            backends.push(BackendPlan { fixed, ..planned });
        }
        Ok(Self { scheduler, weight_homes, backends, largest_crossing })
    }

    /// Refuses a plan that doesn't fit, before a weight is read. The refusal names the first category that doesn't.
    /// What a device with the host's memory takes must fit the host's budget too (rule B5).
    pub fn admit(&self) -> std::result::Result<(), BudgetExceeded> {
        let accounts = self.backends.iter().map(|plan| (plan.name.clone(), plan.budget));
        let mut ledger = Ledger::new(accounts);
        let host = self.backends.len() - 1;
        for (index, plan) in self.backends.iter().enumerate() {
            let charges = plan.charges();
            for category in Category::ALL {
                let part = Charges::of(category, charges.get(category));
                ledger.reserve(BackendId::new(index), part)?.commit();
                if plan.unified && index != host {
                    ledger.reserve(BackendId::new(host), part)?.commit();
                }
            }
        }
        Ok(())
    }

    /// What a budget leaves, by backend; on the host less what devices take of its memory (rule B5). `None` without a budget.
    pub fn headroom(&self) -> Vec<Option<Bytes>> {
        let host = self.backends.len() - 1;
        let totals = self.backends.iter().map(|plan| plan.charges().total());
        let shared = self.backends[..host].iter().filter(|plan| plan.unified);
        let shared: Bytes = shared.map(|plan| plan.charges().total()).sum();
        let left = |(index, (plan, total)): (usize, (&BackendPlan, Bytes))| {
            let total = if index == host { total.saturating_add(shared) } else { total };
            plan.budget.headroom(total, plan.weights.mapped)
        };
        self.backends.iter().zip(totals).enumerate().map(left).collect()
    }

    /// By backend, the CPU last.
    pub fn backends(&self) -> &[BackendPlan] {
        &self.backends
    }

    /// Bytes of the largest value that crosses from one backend to another.
    pub fn largest_crossing(&self) -> Bytes {
        self.largest_crossing
    }

    /// Who assigns nodes, with the plan's states in their places.
    pub fn scheduler(&self) -> &BackendScheduler {
        &self.scheduler
    }

    /// The backends whose nodes read a weight: none for one that no graph uses.
    pub fn weight_homes(&self, id: WeightId) -> impl Iterator<Item = BackendId> + use<> {
        let all = BackendId::new(0)..=BackendId::new(self.backends.len());
        let homes: Vec<_> =
            self.weight_homes.range((id, *all.start())..=(id, *all.end())).map(|(_, b)| *b).collect();
        homes.into_iter()
    }
}

impl BackendPlan {
    fn of(alloc: &GraphAllocator, id: BackendId, budget: Budget, weights: WeightCharge) -> Self {
        let charged = alloc.charged(id);
        let report = alloc.memory_report(id);
        Self {
            name: report.backend,
            budget,
            weights,
            kv: report.kv_bytes,
            classes: report.reserved_classes,
            staging: alloc.staging_sizes(id),
            scratch: report.scratch_bytes,
            fixed: alloc.spec(id).fixed_bytes(),
            host: charged.get(Category::Host),
            unified: alloc.spec(id).is_unified(),
        }
    }
}
