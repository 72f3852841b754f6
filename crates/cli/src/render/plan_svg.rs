//! The plan as a picture: a stacked bar per device on one axis, the strip of blocks, the verdict.
//!
//! A plain SVG: no script, no font, nothing from elsewhere.

use std::fmt::Write;

use minfer_engine::{BackendMemory, Plan};

use super::{bar, file_name, mib, short_name};
use crate::escape;

/// Width of a bar in pixels.
const WIDTH: f64 = 720.0;
const LEFT: f64 = 20.0;
/// Pixels from one device to the next.
const PITCH: f64 = 90.0;
/// Pixels from one line of text to the next.
const LINE: f64 = 20.0;
/// Characters of a line of text: what is sure to fit the width of the bars.
const COLUMNS: usize = 90;
const TOP: f64 = 60.0;

/// The picture.
pub(crate) fn plan_svg(plan: &Plan) -> String {
    let axis = bar::axis(&plan.backends);
    let strip = TOP + PITCH * plan.backends.len() as f64;
    let verdict = verdict(plan);
    let (width, height) = (WIDTH + 2.0 * LEFT, strip + 50.0 + LINE * verdict.len() as f64);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <defs><pattern id=\"others\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\">\
         <path d=\"M0 6 6 0\" stroke=\"#999\"/></pattern></defs>\n"
    );
    let title = format!(
        "{}: {}, {} blocks, ctx {}, KV {}, batch {}",
        file_name(&plan.model.path),
        plan.model.architecture,
        plan.model.n_layers,
        plan.request.ctx,
        plan.request.kv_type,
        plan.request.batch
    );
    text(&mut svg, 28.0, &title, "font-weight=\"bold\"");
    for (i, backend) in plan.backends.iter().enumerate() {
        device(&mut svg, backend, TOP + PITCH * i as f64, axis);
    }
    blocks(&mut svg, plan, strip);
    for (i, line) in verdict.iter().enumerate() {
        let weight = if i == 0 { "font-weight=\"bold\"" } else { "" };
        text(&mut svg, strip + 50.0 + LINE * i as f64, line, weight);
    }
    svg + "</svg>\n"
}

/// The verdict, its reason, and what to try, line by line.
fn verdict(plan: &Plan) -> Vec<String> {
    let Some(refusal) = &plan.refusal else {
        let per_1024 = mib(plan.kv_bytes_per_token.saturating_mul(1024));
        return vec![format!("Fits. 1024 tokens of context cost {per_1024} MiB.")];
    };
    let mut lines = vec!["Does not fit.".to_owned()];
    lines.extend(wrap(&refusal.message));
    lines.extend(plan.alternatives.iter().map(|other| format!("try {}", other.argv.join(" "))));
    lines
}

/// A text in lines of at most [`COLUMNS`] characters, broken at spaces.
fn wrap(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().filter(|line| line.len() + word.len() < COLUMNS || line.is_empty());
        match line {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) => *line = format!("{line} {word}"),
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

fn device(svg: &mut String, backend: &BackendMemory, y: f64, axis: u64) {
    let name = format!("{}  {}  {} MiB", short_name(backend), backend.device, mib(backend.total_bytes));
    text(svg, y, &name, "");
    let scale = |bytes: u64| WIDTH * bytes as f64 / axis as f64;
    let parts = [
        ("weights", backend.weights_bytes, "#3b6fb6"),
        ("KV", backend.kv_bytes, "#3aa6a0"),
        ("activations and staging", backend.pool_bytes, "#a15fb0"),
        ("scratch", backend.scratch_bytes, "#c98a3c"),
        ("host", backend.host_bytes, "#8a8a8a"),
    ];
    legend(svg, backend, y + 50.0, &parts);
    let mut x = LEFT;
    for (what, bytes, fill) in parts.into_iter().filter(|part| part.1 > 0) {
        segment(svg, x, y, scale(bytes), &format!("{what}: {} MiB", mib(bytes)), fill);
        x += scale(bytes);
    }
    if let (Some(free), Some(total)) = (backend.memory.free, backend.memory.total) {
        let others = total.saturating_sub(free);
        let title = format!("other programs: {} MiB", mib(others));
        segment(svg, LEFT + scale(free), y, scale(others), &title, "url(#others)");
        line(svg, LEFT + scale(free), y, &format!("free: {} MiB", mib(free)), "#666");
    }
    if let Some(budget) = backend.budget_bytes {
        line(svg, LEFT + scale(budget), y, &format!("budget: {} MiB", mib(budget)), "#c00");
    }
}

fn blocks(svg: &mut String, plan: &Plan, y: f64) {
    let width = WIDTH / plan.blocks.len().max(1) as f64;
    for block in &plan.blocks {
        let fill = if block.backend == "cpu" { "#d8d8d8" } else { "#79b473" };
        let title = format!(
            "block {} on {}: weights {} MiB, KV {} MiB",
            block.index,
            block.backend,
            mib(block.weights_bytes),
            mib(block.kv_bytes)
        );
        segment(svg, LEFT + width * block.index as f64, y - 8.0, width, &title, fill);
    }
}

/// What the colours of a bar stand for, in MiB.
fn legend(svg: &mut String, backend: &BackendMemory, y: f64, parts: &[(&str, u64, &str)]) {
    let mut spans = String::new();
    for (what, bytes, fill) in parts.iter().filter(|part| part.1 > 0) {
        let _ = write!(spans, "<tspan fill=\"{fill}\">■</tspan> {what} {}   ", mib(*bytes));
    }
    if let Some(budget) = backend.budget_bytes {
        let _ = write!(spans, "<tspan fill=\"#c00\">|</tspan> budget {}", mib(budget));
    }
    let _ =
        writeln!(svg, "<text x=\"{LEFT}\" y=\"{y}\" font-size=\"12\" xml:space=\"preserve\">{spans}</text>");
}

/// A box of 24 pixels below the text at `y`, with what it stands for as its title.
fn segment(svg: &mut String, x: f64, y: f64, width: f64, title: &str, fill: &str) {
    let _ = writeln!(
        svg,
        "<rect x=\"{x:.2}\" y=\"{:.2}\" width=\"{width:.2}\" height=\"24\" fill=\"{fill}\" stroke=\"#fff\" \
         stroke-width=\"0.5\"><title>{}</title></rect>",
        y + 8.0,
        xml(title)
    );
}

fn line(svg: &mut String, x: f64, y: f64, title: &str, stroke: &str) {
    let _ = writeln!(
        svg,
        "<path d=\"M{x:.2} {:.2}v32\" stroke=\"{stroke}\" stroke-width=\"2\"><title>{}</title></path>",
        y + 4.0,
        xml(title)
    );
}

fn text(svg: &mut String, y: f64, content: &str, attributes: &str) {
    let _ = writeln!(svg, "<text x=\"{LEFT}\" y=\"{y}\" {attributes}>{}</text>", xml(content));
}

/// Text as XML: no markup, no control characters.
fn xml(text: &str) -> String {
    escape::line(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::super::plan_table::tests::{host_only, with_device};
    use super::*;

    #[test]
    fn every_segment_is_titled_and_no_markup_comes_from_the_file() {
        let mut plan = with_device();
        plan.model.architecture = "<script>\u{1b}".into();
        let svg = plan_svg(&plan);
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert!(!svg.contains("<script>") && svg.contains("&lt;script&gt;\\u{1b}"));
        assert_eq!(svg.matches("<rect x=").count(), svg.matches("</title></rect>").count());
        assert!(svg.contains("budget: 5565.0 MiB"));
    }

    #[test]
    fn long_texts_are_wrapped() {
        let words = "expected ".repeat(30);
        let lines = wrap(&words);
        assert!(lines.len() > 2 && lines.iter().all(|line| line.len() <= COLUMNS), "{lines:?}");
        assert_eq!(lines.join(" "), words.trim_end());
    }

    #[test]
    fn a_host_without_budget_has_no_line() {
        let svg = plan_svg(&host_only());
        assert!(svg.contains("Fits.") && !svg.contains("budget:"));
    }
}
