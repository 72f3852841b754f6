//! The plan as a picture: a stacked bar per device on one axis, the strip of blocks, the verdict.
//!
//! A plain SVG: no script, no font, nothing from elsewhere.

use std::fmt::Write;

use minfer_engine::{BackendMemory, Plan};

use super::{bar, blocks, file_name, fit, mib, short_name};
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
/// Characters of a name: the rest of its line has room too.
const NAME: usize = 40;
const TOP: f64 = 60.0;

/// The picture.
pub(crate) fn plan_svg(plan: &Plan) -> String {
    let axis = bar::axis(&plan.backends);
    let strip = TOP + PITCH * plan.backends.len() as f64;
    let verdict = verdict(plan);
    let (width, height) = (WIDTH + 2.0 * LEFT, strip + 62.0 + LINE * verdict.len() as f64);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <defs><pattern id=\"others\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\">\
         <path d=\"M0 6 6 0\" stroke=\"#999\"/></pattern></defs>\n"
    );
    let title = format!(
        "{}: {}, {} blocks, ctx {}, KV {}, batch {}",
        fit(&file_name(&plan.model.path), NAME),
        fit(&plan.model.architecture, NAME / 2),
        plan.model.n_layers,
        plan.request.ctx,
        plan.request.kv_type,
        plan.request.batch
    );
    text(&mut svg, 28.0, &title, "font-weight=\"bold\"");
    for (i, backend) in plan.backends.iter().enumerate() {
        device(&mut svg, backend, TOP + PITCH * i as f64, axis);
    }
    strip_of_blocks(&mut svg, plan, strip);
    for (i, line) in verdict.iter().enumerate() {
        let weight = if i == 0 { "font-weight=\"bold\"" } else { "" };
        text(&mut svg, strip + 62.0 + LINE * i as f64, line, weight);
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
    let device = fit(&backend.device, NAME);
    text(svg, y, &format!("{}: {device}, {} MiB", short_name(backend), mib(backend.total_bytes)), "");
    let scale = |bytes: u64| WIDTH * bytes as f64 / axis as f64;
    let parts = [
        ("weights", backend.weights_bytes, "#3b6fb6"),
        ("KV", backend.kv_bytes, "#3aa6a0"),
        ("activations and staging", backend.pool_bytes, "#a15fb0"),
        ("scratch", backend.scratch_bytes, "#c98a3c"),
        ("host", backend.host_bytes, "#8a8a8a"),
    ];
    let parts = parts.into_iter().filter(|part| part.1 > 0);
    let room = backend.memory.free.or(backend.budget_bytes).unwrap_or(0);
    let unused = room.saturating_sub(backend.total_bytes);
    if unused > 0 {
        segment(svg, LEFT, y, scale(room), &format!("unused: {} MiB", mib(unused)), "#f0f0f0");
    }
    let mut x = LEFT;
    for (what, bytes, fill) in parts.clone() {
        // What is there shows, however little it is.
        let width = scale(bytes).max(2.0);
        segment(svg, x, y, width, &format!("{what}: {} MiB", mib(bytes)), fill);
        x += width;
    }
    let mut marks = Vec::new();
    if let (Some(free), Some(total)) = (backend.memory.free, backend.memory.total) {
        let others = total.saturating_sub(free);
        let title = format!("other programs: {} MiB", mib(others));
        segment(svg, LEFT + scale(free), y, scale(others), &title, "url(#others)");
        line(svg, LEFT + scale(free), y, &format!("free: {} MiB", mib(free)), "#666");
        marks.extend([('|', "free", free, "#666"), ('/', "other programs", others, "#999")]);
    }
    if let Some(budget) = backend.budget_bytes {
        line(svg, LEFT + scale(budget), y, &format!("budget: {} MiB", mib(budget)), "#c00");
        marks.insert(0, ('|', "budget", budget, "#c00"));
    }
    legend(svg, y + 50.0, parts.map(|(what, bytes, fill)| ('■', what, bytes, fill)));
    legend(svg, y + 66.0, marks);
}

/// The blocks, and in words where they are.
fn strip_of_blocks(svg: &mut String, plan: &Plan, y: f64) {
    text(svg, y, &format!("blocks: {}", blocks::counts(plan)), "");
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
        segment(svg, LEFT + width * block.index as f64, y, width, &title, fill);
    }
}

/// A line of what marks and colours of a bar stand for, in MiB.
fn legend<'a>(svg: &mut String, y: f64, entries: impl IntoIterator<Item = (char, &'a str, u64, &'a str)>) {
    let spans: String = entries
        .into_iter()
        .map(|(mark, what, bytes, fill)| {
            format!("<tspan fill=\"{fill}\">{mark}</tspan> {what} {}   ", mib(bytes))
        })
        .collect();
    if !spans.is_empty() {
        let _ = writeln!(
            svg,
            "<text x=\"{LEFT}\" y=\"{y}\" font-size=\"12\" xml:space=\"preserve\">{spans}</text>"
        );
    }
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
    fn long_names_are_cut_and_little_parts_show() {
        let mut plan = with_device();
        plan.model.path = "x".repeat(300).into();
        plan.backends[0].device = "y".repeat(300);
        plan.backends[1].kv_bytes = 1;
        let svg = plan_svg(&plan);
        assert!(!svg.contains(&"x".repeat(NAME)) && !svg.contains(&"y".repeat(NAME)));
        assert!(svg.contains("width=\"2.00\"") && svg.contains("<title>KV: &lt;0.1 MiB</title>"));
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
