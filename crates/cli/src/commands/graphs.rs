//! `--dump-graph`: what will be computed, for reading and for Graphviz.

use std::path::Path;

use minfer_engine::{Error, ModelFile, Options, Plan};
use minfer_graph::rungs;

use crate::error::CliError;
use crate::session::write_file;

/// Writes the graphs of all rungs of the plan: in the DOT language if the file's name ends in `.dot`, else as text.
pub(super) fn dump(path: &Path, file: &ModelFile, plan: &Plan, options: &Options) -> Result<(), CliError> {
    let model = file.model();
    let model_error = |source| Error::Model { path: file.path().to_owned(), source };
    let states = model.states(plan.request.ctx, options.kv_type).map_err(model_error)?;
    let dot = path.extension().is_some_and(|extension| extension == "dot");
    let mut text = String::new();
    for rung in rungs(plan.request.batch) {
        let graph = model.build(rung.tokens, rung.outputs, &states).map_err(Error::Graph)?;
        let (mark, graph) = if dot { ("//", graph.to_dot()) } else { ("#", graph.to_string()) };
        text.push_str(&format!("{mark} {} tokens, {} outputs\n{graph}\n", rung.tokens, rung.outputs));
    }
    write_file(path, &text)
}
