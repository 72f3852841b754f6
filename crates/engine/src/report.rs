//! The plan and what is held, backend by backend, in one shape.

use std::sync::Arc;

use minfer_graph::{BackendPlan, Category, DeviceMemory, DeviceSpec, MemoryReport};
use minfer_tensor::Bytes;
use minfer_text::{ChatTemplate, Tokenizer};

use crate::ModelFile;
use crate::context::Context;
use crate::plan::{BackendMemory, MemoryAnswer, Plan};

impl From<&DeviceMemory> for MemoryAnswer {
    fn from(memory: &DeviceMemory) -> Self {
        let outcome = |name: &str| Self { outcome: name.to_owned(), ..Self::default() };
        match memory {
            DeviceMemory::Reported { free, total } => {
                Self { free: Some(free.get()), total: Some(total.get()), ..outcome("reported") }
            }
            DeviceMemory::QueryFailed { name } => {
                Self { error: Some(name.clone()), ..outcome("query_failed") }
            }
            DeviceMemory::NoDevice => outcome("no_device"),
        }
    }
}

/// What one backend will hold, as people read it.
pub(crate) fn planned_memory(
    plan: &BackendPlan,
    spec: &Arc<dyn DeviceSpec>,
    memory: &DeviceMemory,
    headroom: Option<Bytes>,
) -> BackendMemory {
    let charges = plan.charges();
    let category = |category| charges.get(category).get();
    let total = charges.total();
    let mapped = plan.weights.mapped;
    // What lies in a device's own memory is neither pages of a file nor memory of the process.
    let staging_bytes = category(Category::Staging);
    BackendMemory {
        name: plan.name.clone(),
        device: spec.device_name(),
        memory: memory.into(),
        budget_bytes: plan.budget.limit().map(Bytes::get),
        weights_bytes: charges.weights().get(),
        kv_bytes: category(Category::Kv),
        pool_bytes: category(Category::Pool) + staging_bytes,
        scratch_bytes: category(Category::Scratch),
        host_bytes: category(Category::Host),
        total_bytes: total.get(),
        headroom_bytes: headroom.map(Bytes::get),
        staging_bytes,
        mapped_bytes: mapped.get(),
        anonymous_bytes: if plan.unified { total.saturating_sub(mapped).get() } else { 0 },
        live_bytes: None,
        peak_live_bytes: None,
        idle_slots: None,
        reserved_classes: None,
    }
}

/// What is held now, in the shape of the plan.
pub(crate) fn report(plan: &Plan, file: &ModelFile, context: &Context, caller: Bytes) -> Plan {
    let host = measured_host(file, context).saturating_add(caller);
    let alloc = context.runner().allocator();
    let cpu = alloc.cpu();
    let reports = alloc.ids().map(|id| {
        let held = context.runner().memory_report(id);
        // What the ledger charged for the host is the bound; what is reported is what is there.
        let host = if id == cpu { host } else { held.host_bytes };
        (MemoryReport { host_bytes: host, ..held }, alloc.spec(id).is_unified())
    });
    let backends = plan.backends.iter().zip(reports);
    let backends = backends.map(|(planned, (held, unified))| measured(planned, &held, unified));
    let mut backends: Vec<_> = backends.collect();
    let Some((cpu, devices)) = backends.split_last_mut() else { return plan.clone() };
    // What a device with the host's memory holds isn't left on the host either (rule B5).
    let shared: u64 = devices.iter().map(|device| device.anonymous_bytes).sum();
    cpu.headroom_bytes = cpu.headroom_bytes.map(|left| left.saturating_sub(shared));
    Plan { backends, ..plan.clone() }
}

fn measured_host(file: &ModelFile, context: &Context) -> Bytes {
    let text = [
        file.loaded_tokenizer().map(Tokenizer::heap_bytes),
        file.loaded_template().map(ChatTemplate::heap_bytes),
    ];
    let own = [file.index().header_bytes(), context.heap_bytes()];
    text.into_iter().flatten().chain(own).sum()
}

fn measured(planned: &BackendMemory, held: &MemoryReport, unified: bool) -> BackendMemory {
    BackendMemory {
        weights_bytes: held.weights_bytes.get(),
        kv_bytes: held.kv_bytes.get(),
        pool_bytes: held.pool_bytes.get(),
        scratch_bytes: held.scratch_bytes.get(),
        host_bytes: held.host_bytes.get(),
        total_bytes: held.total_bytes().get(),
        headroom_bytes: held.headroom_bytes().map(Bytes::get),
        staging_bytes: held.staging_bytes.get(),
        mapped_bytes: held.mapped_bytes.get(),
        anonymous_bytes: if unified { held.anonymous_bytes().get() } else { 0 },
        live_bytes: Some(held.live_bytes.get()),
        peak_live_bytes: Some(held.peak_live_bytes.get()),
        idle_slots: Some(held.idle_slots as u64),
        reserved_classes: Some(held.reserved_classes.len() as u64),
        ..planned.clone()
    }
}
