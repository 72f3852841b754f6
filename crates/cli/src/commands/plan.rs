//! `minfer plan`: where every byte will go.

use super::graphs;
use crate::args::PlanArgs;
use crate::error::CliError;
use crate::output::{self, Style};
use crate::render;
use crate::session::{self, MemoryReport};

/// Shows the plan. One that doesn't fit is shown too, and then is an error.
pub(super) fn plan(args: &PlanArgs) -> Result<(), CliError> {
    let report = MemoryReport::create(&args.model)?;
    let file = session::open_header(&args.model)?;
    let options = args.model.engine.options();
    let plan = session::plan(&file, &args.model.engine, &options)?;
    report.write(&plan)?;
    if let Some(path) = &args.svg {
        session::write_file(path, &render::plan_svg(&plan))?;
    }
    if let Some(path) = &args.dump_graph {
        graphs::dump(path, &file, &plan, &options)?;
    }
    if args.model.output.json {
        if plan.fits {
            session::show_notes(&plan.notes, &args.model);
        }
        output::print_json(&plan)?;
    } else {
        output::print(&render::plan_table(&plan, Style::of_stdout()))?;
    }
    CliError::refusal(&plan).map_or(Ok(()), Err)
}
