//! The plan beside what came of it.

use minfer_engine::Plan;

use super::plan_table::{HEADINGS, cells, row};
use super::short_name;

/// Two rows a backend, planned and measured, in MiB.
pub(crate) fn report_table(plan: &Plan, report: &Plan) -> String {
    let mut table = row("MiB", HEADINGS.map(String::from));
    for (planned, measured) in plan.backends.iter().zip(&report.backends) {
        table.push_str(&row(&short_name(planned), cells(planned)));
        table.push_str(&row("measured", cells(measured)));
    }
    table.truncate(table.trim_end().len());
    table
}
