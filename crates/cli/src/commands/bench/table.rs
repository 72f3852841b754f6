//! The results as people read them: columns of text, or Markdown for records.

use std::path::Path;

use super::{DeviceWork, Report, TestResult};
use crate::escape;

const HEADINGS: [&str; 7] = ["test", "tokens/s", "GB/s", "of read", "GMAC/s", "of peak", "differ"];
/// Columns of text that each takes; the first is aligned to the left.
const WIDTHS: [usize; 7] = [15, 20, 8, 9, 9, 9, 8];

/// Columns of at most 80 characters.
pub(super) fn text(report: &Report) -> String {
    let line = |cells: [String; 7]| {
        let mut line = format!("{:<width$}", cells[0], width = WIDTHS[0]);
        for (cell, width) in cells[1..].iter().zip(&WIDTHS[1..]) {
            line.push_str(&format!("{cell:>width$}"));
        }
        line + "\n"
    };
    let rows: String = report.results.iter().map(|result| line(cells(result))).collect();
    header(report)
        + "\n"
        + &line(HEADINGS.map(String::from))
        + &rows
        + &remarks(report).map(|remark| remark + "\n").collect::<String>()
}

/// A table that can be pasted into a document.
pub(super) fn markdown(report: &Report) -> String {
    let line = |cells: [String; 7]| format!("| {} |\n", cells.join(" | "));
    let rows: String = report.results.iter().map(|result| line(cells(result))).collect();
    let rule = format!("|---|{}\n", "---:|".repeat(HEADINGS.len() - 1));
    let remarks: String = remarks(report).map(|remark| format!("\n{remark}\n")).collect();
    format!("{}\n\n", header(report)) + &line(HEADINGS.map(String::from)) + &rule + &rows + &remarks
}

fn header(report: &Report) -> String {
    let bandwidth = report.device_bytes_per_second;
    let bandwidth = bandwidth.map(|best| format!(", reads {:.2} GB/s", best / 1e9)).unwrap_or_default();
    let model = Path::new(&report.model).file_name().unwrap_or_default().to_string_lossy();
    format!("{}: {}{bandwidth}", escape::line(&model), escape::line(&report.device))
}

fn cells(result: &TestResult) -> [String; 7] {
    let (speed, work, limits) = (&result.tokens_per_second, &result.work, &result.cpu_limits);
    let share = |share: Option<f64>| share.map_or("-".into(), |share| format!("{:.1} %", 100.0 * share));
    let mark = if limits.as_ref().is_some_and(|limits| limits.unsteady) { " !" } else { "" };
    let difference = limits.as_ref().map(|limits| format!("{:.0} %{mark}", 100.0 * limits.difference()));
    [
        result.test.clone(),
        format!("{:.2} +- {:.2}", speed.mean, speed.stddev),
        format!("{:.2}", work.bytes_per_second / 1e9),
        share(limits.as_ref().map(|limits| limits.read_share)),
        format!("{:.2}", work.macs_per_second / 1e9),
        share(limits.as_ref().map(|limits| limits.mac_share)),
        difference.unwrap_or("-".into()),
    ]
}

fn remarks(report: &Report) -> impl Iterator<Item = String> {
    let limits = report.results.iter().filter_map(|result| {
        let limits = result.cpu_limits.as_ref()?;
        let (read, products) = (limits.bytes_per_second / 1e9, limits.macs_per_second / 1e9);
        Some(format!(
            "{}: a plain read is {read:.2} GB/s, plain products are {products:.1} GMAC/s",
            result.test
        ))
    });
    let unsteady = report.results.iter().any(|result| result.cpu_limits.as_ref().is_some_and(|l| l.unsteady));
    let unsteady = unsteady
        .then(|| "! limits differed much, or are below what was reached: the machine is shared".to_owned());
    let device = report.results.iter().filter_map(|result| {
        Some(format!("{}: {}", result.test, result.device_work.as_ref().map(DeviceWork::line)?))
    });
    limits.chain(unsteady).chain(device).chain(report.no_cpu_limits.clone())
}
