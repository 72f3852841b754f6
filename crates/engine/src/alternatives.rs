//! What to change so that a refused plan fits (rule B3): each change alone, each checked by the planner itself.

use minfer_graph::cache::ladder;
use minfer_tensor::{Bytes, DType};

use crate::plan::Alternative;
use crate::planner::{Host, resolve_memory};
use crate::{ModelFile, Options, Setting};

/// Contexts are proposed in multiples of this many positions, below it of [`FINE_STEP`].
const COARSE_STEP: usize = 256;
const FINE_STEP: usize = 16;
/// KV types and their spelling, largest first.
const KV_TYPES: [(DType, &str); 3] = [(DType::F32, "f32"), (DType::F16, "f16"), (DType::Q8_0, "q8_0")];

/// Nearby requests that would be admitted: the largest context, the largest batch, the next smaller KV type that fits, pages of the file
/// exempt from the budget, and the budget that it takes.
pub(crate) fn alternatives(file: &ModelFile, options: &Options, host: &Host) -> Vec<Alternative> {
    let attempt = |argv: &[&str], changed: &Options| {
        let left = left(file, changed, host)?;
        let argv = argv.iter().map(|&word| word.to_owned()).collect();
        Some(Alternative { argv, gpu_layers: 0, left_bytes: left.get() })
    };
    let with_ctx = |n: usize| Options { ctx: Some(n), ..options.clone() };
    let with_batch = |batch: usize| Options { batch, ..options.clone() };
    let ctx = largest_context(options.n_ctx(file.model().config().n_ctx_train), |n| {
        left(file, &with_ctx(n), host).is_some()
    });
    let n_batch = options.n_batch(options.n_ctx(file.model().config().n_ctx_train));
    let smaller = ladder(n_batch).filter(|&n| n < n_batch);
    let batch = smaller.filter(|&n| left(file, &with_batch(n), host).is_some()).last();
    let mut smaller = KV_TYPES.iter().skip_while(|(kv_type, _)| *kv_type != options.kv_type).skip(1);
    let kv_type = smaller
        .find_map(|&(kv_type, name)| attempt(&["--kv-type", name], &Options { kv_type, ..options.clone() }));
    let budget = needed_mib(file, options, host).map(|mib| mib.to_string());
    let found = [
        ctx.and_then(|n| attempt(&["--ctx", &n.to_string()], &with_ctx(n))),
        batch.and_then(|n| attempt(&["--batch", &n.to_string()], &with_batch(n))),
        kv_type,
        (!options.allow_paging)
            .then(|| Options { allow_paging: true, ..options.clone() })
            .and_then(|changed| attempt(&["--allow-paging"], &changed)),
        budget.and_then(|mib| {
            let cpu_mem = Some(Setting::new(mib.as_str(), "--cpu-mem"));
            attempt(&["--cpu-mem", &mib], &Options { cpu_mem, ..options.clone() })
        }),
    ];
    found.into_iter().flatten().collect()
}

/// What an admitted request leaves of the budget; `None` if it isn't admitted.
fn left(file: &ModelFile, options: &Options, host: &Host) -> Option<Bytes> {
    let memory = resolve_memory(file, options, host).ok()?.memory;
    memory.admit().ok()?;
    let cpu = memory.backends().last()?;
    cpu.budget.headroom(cpu.charges().total(), cpu.weights.mapped)
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

/// The smallest budget in MiB that admits the request.
fn needed_mib(file: &ModelFile, options: &Options, host: &Host) -> Option<u64> {
    let memory = resolve_memory(file, options, host).ok()?.memory;
    let cpu = memory.backends().last()?;
    let exempt = if options.allow_paging { cpu.weights.mapped } else { Bytes::ZERO };
    Some(cpu.charges().total().saturating_sub(exempt).get().div_ceil(Bytes::MIB.get()))
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
