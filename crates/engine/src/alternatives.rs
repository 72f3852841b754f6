//! What to change so that a refused plan fits (rule B3): each change alone, each checked by the planner itself.

use minfer_graph::cache::ladder;
use minfer_graph::{DeviceMemory, MemoryPlan, OffloadPlan};
use minfer_tensor::{Bytes, DType};

use crate::plan::Alternative;
use crate::resolver::Resolver;
use crate::{Host, ModelFile, Options, Setting};

/// Contexts are proposed in multiples of this many positions, below it of [`FINE_STEP`].
const COARSE_STEP: usize = 256;
const FINE_STEP: usize = 16;
/// KV types and their spelling, largest first.
const KV_TYPES: [(DType, &str); 3] = [(DType::F32, "f32"), (DType::F16, "f16"), (DType::Q8_0, "q8_0")];

/// Nearby requests that would be admitted: as many blocks as fit the device, the largest context, the largest batch, the
/// next smaller KV type that fits, pages of the file exempt from the budget, and the budget that it takes, if that is there.
/// `refused` is the backend that the request doesn't fit.
pub(crate) fn alternatives(
    file: &ModelFile,
    options: &Options,
    host: &Host,
    refused: &str,
) -> Vec<Alternative> {
    let attempt = |argv: &[&str], changed: &Options| {
        let (offload, left) = admitted(file, changed, host, refused)?;
        let argv = argv.iter().map(|&word| word.to_owned()).collect();
        Some(Alternative { argv, gpu_layers: offload.gpu_layers as usize, left_bytes: left.get() })
    };
    let fits = |changed: &Options| admitted(file, changed, host, refused).is_some();
    let with_ctx = |n: usize| Options { ctx: Some(n), ..options.clone() };
    let with_batch = |batch: usize| Options { batch, ..options.clone() };
    let with_layers =
        |n: &str| Options { gpu_layers: Some(Setting::new(n, "--gpu-layers")), ..options.clone() };
    let on_device = host.device.as_ref().is_some_and(|device| device.spec.name() == refused);
    let fewer = on_device.then(|| attempt(&["--gpu-layers", "auto"], &with_layers("auto"))).flatten();
    let n_ctx = options.n_ctx(file.model().config().n_ctx_train);
    let ctx = largest_context(n_ctx, |n| fits(&with_ctx(n)));
    let n_batch = options.n_batch(n_ctx);
    let batch = ladder(n_batch).filter(|&n| n < n_batch && fits(&with_batch(n))).last();
    let mut smaller = KV_TYPES.iter().skip_while(|(kv_type, _)| *kv_type != options.kv_type).skip(1);
    let kv_type = smaller
        .find_map(|&(kv_type, name)| attempt(&["--kv-type", name], &Options { kv_type, ..options.clone() }));
    let pages = (!on_device && !options.allow_paging)
        .then(|| attempt(&["--allow-paging"], &Options { allow_paging: true, ..options.clone() }));
    let there =
        if on_device { host.device.as_ref().map(|device| &device.memory) } else { Some(&host.memory) };
    let budget =
        needed_mib(file, options, host, refused).filter(|&mib| is_there(mib, there)).and_then(|mib| {
            let flag = if on_device { "--gpu-mem" } else { "--cpu-mem" };
            let setting = Some(Setting::new(mib.to_string(), flag));
            let changed = match on_device {
                true => Options { gpu_mem: setting, ..options.clone() },
                false => Options { cpu_mem: setting, ..options.clone() },
            };
            attempt(&[flag, &mib.to_string()], &changed)
        });
    let found = [
        fewer.as_ref().and_then(|auto| {
            let n = auto.gpu_layers.to_string();
            attempt(&["--gpu-layers", &n], &with_layers(&n))
        }),
        fewer,
        ctx.and_then(|n| attempt(&["--ctx", &n.to_string()], &with_ctx(n))),
        batch.and_then(|n| attempt(&["--batch", &n.to_string()], &with_batch(n))),
        kv_type,
        pages.flatten(),
        budget,
    ];
    found.into_iter().flatten().collect()
}

fn resolved(file: &ModelFile, options: &Options, host: &Host) -> Option<(OffloadPlan, MemoryPlan)> {
    let resolver = Resolver::new(file, options, host).ok()?;
    let offload = resolver.offload().ok()?.plan;
    Some((offload, resolver.memory(offload).ok()?))
}

/// The blocks of an admitted request, and what it leaves of the budget of the backend that refused; `None` if it isn't
/// admitted.
fn admitted(file: &ModelFile, options: &Options, host: &Host, refused: &str) -> Option<(OffloadPlan, Bytes)> {
    let (offload, memory) = resolved(file, options, host)?;
    memory.admit().ok()?;
    let left = memory.headroom().into_iter().zip(memory.backends());
    let of_refused = left.clone().find(|(_, plan)| plan.name == refused).and_then(|(left, _)| left);
    Some((offload, of_refused.or_else(|| left.filter_map(|(left, _)| left).min())?))
}

/// The largest multiple of a step below `n_ctx` that fits. More positions never take fewer bytes, so halving finds it.
fn largest_context(n_ctx: usize, fits: impl Fn(usize) -> bool) -> Option<usize> {
    let step = if n_ctx > COARSE_STEP && fits(COARSE_STEP) { COARSE_STEP } else { FINE_STEP };
    let (mut good, mut bad) = (0, n_ctx.div_ceil(step));
    while good + 1 < bad {
        let middle = good.midpoint(bad);
        if fits(middle * step) { good = middle } else { bad = middle }
    }
    (good > 0).then_some(good * step)
}

/// Whether a budget isn't known to be more than there is.
fn is_there(mib: u64, memory: Option<&DeviceMemory>) -> bool {
    match memory {
        Some(&DeviceMemory::Reported { free, .. }) => mib <= free.get() / Bytes::MIB.get(),
        _ => true,
    }
}

/// The smallest budget in MiB that admits the request on the backend that refused it, with what a device takes of the
/// host's own memory.
fn needed_mib(file: &ModelFile, options: &Options, host: &Host, refused: &str) -> Option<u64> {
    let (_, memory) = resolved(file, options, host)?;
    let plan = memory.backends().iter().find(|plan| plan.name == refused)?;
    let exempt = if options.allow_paging { plan.weights.mapped } else { Bytes::ZERO };
    let (cpu, devices) = memory.backends().split_last()?;
    let shared = devices.iter().filter(|device| device.unified && cpu.name == refused);
    let shared: Bytes = shared.map(|device| device.charges().total()).sum();
    let total = plan.charges().total().saturating_sub(exempt).saturating_add(shared);
    Some(total.get().div_ceil(Bytes::MIB.get()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b3_the_largest_context_is_found() {
        for (n_ctx, limit, expected) in [
            (4096, 1000, Some(768)),
            (4096, 256, Some(256)),
            (4096, 255, Some(240)),
            (4096, 15, None),
            (40, 33, Some(32)),
            (8, 7, None),
        ] {
            assert_eq!(largest_context(n_ctx, |n| n <= limit), expected, "{n_ctx} {limit}");
        }
    }
}
