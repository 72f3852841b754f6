//! The plan as a page of 80 columns.

use std::fmt::Write;

use minfer_engine::{BackendMemory, Plan, Refusal};

use super::{COLUMNS, bar, blocks, file_name, fit, mib, short_name, wrap};
use crate::escape;
use crate::output::{Style, color};

/// Names of the columns of [`row`].
pub(super) const HEADINGS: [&str; 8] =
    ["weights", "KV", "activ", "scratch", "host", "total", "budget", "left"];

/// The plan for people: what was asked for, a bar and a row per device, the blocks, the verdict, and what else would do.
pub(crate) fn plan_table(plan: &Plan, style: Style) -> String {
    let mut page = head(plan, style);
    let axis = bar::axis(&plan.backends);
    for backend in &plan.backends {
        page.push_str(&device(backend));
        page.push_str(&bar::bar(backend, axis, style));
    }
    page.push_str(&bar::legend(&plan.backends, axis, style));
    page.push('\n');
    page.push_str(&row("", HEADINGS.map(String::from)));
    for backend in &plan.backends {
        page.push_str(&row(&short_name(backend), cells(backend)));
    }
    page.push_str(&blocks::blocks(plan, style));
    page.push_str(&repack_choices(plan));
    for note in plan.offload.note.iter().chain(&plan.notes) {
        page.push_str(&wrap("note     ", &escape::line(note)));
    }
    page.push('\n');
    page.push_str(&verdict(plan, style));
    page + &alternatives(plan)
}

fn head(plan: &Plan, style: Style) -> String {
    let (model, request) = (&plan.model, &plan.request);
    let size = format!("  {} (all numbers in MiB)", mib(model.file_bytes));
    let name = fit(&file_name(&model.path), COLUMNS - 6 - size.len());
    let facts = format!(
        "{}, {} blocks, ctx {}, KV {}, batch {}, {} threads, {}",
        escape::line(&model.architecture),
        model.n_layers,
        request.ctx,
        request.kv_type.to_lowercase(),
        request.batch,
        request.threads,
        request.cpu_level,
    );
    format!("plan  {}{size}\n{}\n", style.paint(color::BOLD, &name), wrap("      ", &facts))
}

/// The line above a bar: the device and what it says of its memory.
fn device(backend: &BackendMemory) -> String {
    let memory = &backend.memory;
    let mut facts = Vec::new();
    if let (Some(total), Some(free)) = (memory.total, memory.free) {
        facts.extend([format!("{} total", mib(total)), format!("{} free", mib(free))]);
    }
    if let Some(error) = &memory.error {
        facts.push(format!("memory unknown: {}", escape::line(error)));
    }
    if backend.mapped_bytes + backend.anonymous_bytes > 0 {
        facts.push(format!("mapped {} (reclaimable)", mib(backend.mapped_bytes)));
        facts.push(format!("anonymous {}", mib(backend.anonymous_bytes)));
    }
    facts.push(backend.budget_bytes.map_or("no budget".into(), |budget| format!("budget {}", mib(budget))));
    let name = short_name(backend);
    let title = fit(&escape::line(&backend.device), COLUMNS - name.len() - 2);
    let one_line = format!("{name}  {title}  {}", facts.join("  "));
    if one_line.chars().count() <= COLUMNS {
        one_line + "\n"
    } else {
        format!("{name}  {title}\n{}", wrap(&" ".repeat(name.len() + 2), &facts.join(", ")))
    }
}

/// One line of the table: a name and eight columns.
pub(super) fn row(name: &str, cells: [String; 8]) -> String {
    let mut line = format!("{:<8}", fit(name, 8));
    for cell in cells {
        let _ = write!(line, "{cell:>9}");
    }
    line + "\n"
}

/// The figures of a backend, in the order of [`HEADINGS`].
pub(super) fn cells(backend: &BackendMemory) -> [String; 8] {
    [
        mib(backend.weights_bytes),
        mib(backend.kv_bytes),
        mib(backend.pool_bytes),
        mib(backend.scratch_bytes),
        mib(backend.host_bytes),
        mib(backend.total_bytes),
        backend.budget_bytes.map_or("-".into(), mib),
        backend.headroom_bytes.map_or("-".into(), mib),
    ]
}

/// Where the CPU's weights would be, repacked and not: a line for each choice.
fn repack_choices(plan: &Plan) -> String {
    let mut lines = String::new();
    for choice in &plan.repack_choices {
        let name = if choice.repack { "repack" } else { "--no-repack" };
        let (mapped, anonymous) = (mib(choice.mapped_bytes), mib(choice.anonymous_bytes));
        let chosen = if choice.repack == plan.request.repack { "  this plan" } else { "" };
        let fits = if choice.fits { "" } else { "  does not fit" };
        let _ = writeln!(lines, "{name:<12} mapped {mapped:>8}  anonymous {anonymous:>8}{chosen}{fits}");
    }
    lines
}

fn verdict(plan: &Plan, style: Style) -> String {
    let Some(refusal) = &plan.refusal else {
        let per_1024 = mib(plan.kv_bytes_per_token.saturating_mul(1024));
        return format!(
            "{}  {}. 1024 tokens of context cost {per_1024}\n",
            style.paint(color::GREEN, "FITS"),
            where_blocks_are(plan)
        );
    };
    format!(
        "{}  short by {} on {}\n{}",
        style.paint(color::RED, "DOES NOT FIT"),
        mib(missing(plan, refusal)),
        escape::line(&refusal.backend).to_uppercase(),
        wrap("  ", &escape::line(&refusal.message))
    )
}

/// Bytes that the budget lacks for all of the plan: `refusal` names only the first request that it doesn't hold.
fn missing(plan: &Plan, refusal: &Refusal) -> u64 {
    let flag = if refusal.backend == "cpu" { "--cpu-mem" } else { "--gpu-mem" };
    // What is enough was put to the planner, which knows what is exempt from the budget.
    let enough = plan.alternatives.iter().find_map(|other| match &other.argv[..] {
        [word, mib] if word == flag => {
            Some(mib.parse::<u64>().ok()?.saturating_mul(1 << 20).saturating_sub(other.left_bytes))
        }
        _ => None,
    });
    let all = || plan.backends.iter().find(|b| b.name == refusal.backend).map_or(0, |b| b.total_bytes);
    enough.unwrap_or_else(all).saturating_sub(refusal.budget)
}

fn where_blocks_are(plan: &Plan) -> String {
    let (on_device, n_layers) = (plan.offload.gpu_layers, plan.offload.n_layers);
    match plan.backends.first() {
        Some(device) if on_device > 0 => format!("{on_device}/{n_layers} blocks on {}", short_name(device)),
        _ => format!("all {n_layers} blocks on the CPU"),
    }
}

fn alternatives(plan: &Plan) -> String {
    let has_device = plan.backends.len() > 1;
    let mut lines = String::new();
    for (i, other) in plan.alternatives.iter().enumerate() {
        let blocks = format!("{}/{} blocks, ", other.gpu_layers, plan.offload.n_layers);
        let _ = writeln!(
            lines,
            "{}{:<24}{}{} left",
            if i == 0 { "try   " } else { "      " },
            other.argv.join(" "),
            if has_device { blocks.as_str() } else { "" },
            mib(other.left_bytes)
        );
    }
    lines
}

#[cfg(test)]
pub(super) mod tests;
