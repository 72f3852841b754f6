//! The plan beside what came of it.

use minfer_engine::Plan;

use super::plan_table::{cells, row};
use super::{COLUMNS, fit, short_name};

/// Two rows a backend, planned and measured, in MiB.
pub fn report_table(plan: &Plan, report: &Plan) -> String {
    let headings = ["weights", "KV", "activ", "scratch", "host", "total", "budget", "left"].map(String::from);
    let mut table = row("MiB", headings);
    for (planned, measured) in plan.backends.iter().zip(&report.backends) {
        let name = short_name(planned);
        table.push_str(&fit(&format!("{name} planned, then measured"), COLUMNS));
        table.push('\n');
        table.push_str(&row("", cells(planned)));
        table.push_str(&row("", cells(measured)));
    }
    table
}
