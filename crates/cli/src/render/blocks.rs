//! Which block is where, as a strip of letters.

use minfer_engine::Plan;

use super::short_name;
use crate::output::Style;

/// Blocks that are shown one by one.
const STRIP: usize = 60;

/// The line about blocks: `blocks   GGGGCC  4 CUDA, 2 CPU + embed, head`.
pub(super) fn blocks(plan: &Plan, style: Style) -> String {
    let runs: Vec<(&str, usize)> = plan
        .blocks
        .chunk_by(|a, b| a.backend == b.backend)
        .map(|run| (run[0].backend.as_str(), run.len()))
        .collect();
    let strip = if plan.blocks.len() <= STRIP {
        runs.iter().map(|&(name, n)| letter(name).repeat(n)).collect::<String>()
    } else {
        let times = if style.utf8 { '×' } else { 'x' };
        runs.iter().map(|&(name, n)| format!("{}{times}{n}", letter(name))).collect::<Vec<_>>().join(" ")
    };
    format!("blocks   {strip}  {}\n", counts(plan))
}

/// How many blocks are where, and what goes with them: `4 CUDA, 2 CPU + embed, head`.
pub(super) fn counts(plan: &Plan) -> String {
    let host = plan.backends.last().map(|b| b.name.as_str()).unwrap_or_default();
    let device = plan.backends.first().map(|b| b.name.as_str()).unwrap_or_default();
    let unblocked = if plan.offload.unblocked_on_device { device } else { host };
    let counts = plan.backends.iter().filter_map(|backend| {
        let n = plan.blocks.iter().filter(|block| block.backend == backend.name).count();
        let rest = if backend.name == unblocked { " + embed, head" } else { "" };
        (n > 0 || !rest.is_empty()).then(|| format!("{n} {}{rest}", short_name(backend)))
    });
    counts.collect::<Vec<_>>().join(", ")
}

/// `C` for the CPU, `G` for everything else.
fn letter(backend: &str) -> &'static str {
    if backend == "cpu" { "C" } else { "G" }
}
