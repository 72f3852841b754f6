//! `minfer inspect`: what is in a file. It needn't be a model that minfer runs.

use minfer_engine::{ModelFile, missing_note};
use minfer_gguf::{GgufTensorInfo, Index, Value};
use serde::{Serialize, Serializer};
use serde_json::Value as Json;

use crate::args::InspectArgs;
use crate::error::CliError;
use crate::output::{self, Versioned};
use crate::render;
use crate::session::{self, MemoryReport};

#[derive(Serialize)]
struct Contents<'a> {
    #[serde(serialize_with = "metadata")]
    metadata: &'a Index,
    tensors: Vec<Tensor<'a>>,
}

#[derive(Serialize)]
struct Tensor<'a> {
    name: &'a str,
    dtype: &'static str,
    shape: Vec<usize>,
    offset: u64,
    bytes: u64,
}

/// Shows metadata and tensors; reads no weight.
pub(super) fn inspect(args: &InspectArgs) -> Result<(), CliError> {
    let report = MemoryReport::create(&args.model)?;
    let path = session::resolve(&args.model)?;
    let index = Index::open_header(&path)?;
    if let Some(note) = missing_note(&index).filter(|_| !args.model.output.quiet) {
        output::note(&format!("note: {note}"));
    }
    if args.model.memory_report.is_some() {
        report.write_plan(&ModelFile::open_header(&path)?, &args.model.engine)?;
    }
    if args.model.output.json {
        let tensors = index.tensors().iter().map(tensor).collect();
        return output::print_json(&Versioned::new(Contents { metadata: &index, tensors }));
    }
    output::print(&render::inspect(&index))
}

fn tensor(info: &GgufTensorInfo) -> Tensor<'_> {
    Tensor {
        name: &info.name,
        dtype: info.dtype.name(),
        shape: info.shape.dims().to_vec(),
        offset: info.offset,
        bytes: info.nbytes().get(),
    }
}

fn metadata<S: Serializer>(index: &Index, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(index.metadata().iter().map(|(key, value)| (key, json(value))))
}

/// A value as JSON. What JSON lacks, infinities and bytes that aren't UTF-8, becomes null and U+FFFD.
fn json(value: Value<'_>) -> Json {
    match value {
        Value::Bool(b) => b.into(),
        Value::F32(x) => serde_json::from_str(&x.to_string()).unwrap_or(Json::Null),
        Value::F64(x) => x.into(),
        Value::Str(text) => String::from_utf8_lossy(text.as_bytes()).into(),
        Value::Array(array) => array.iter().map(json).collect(),
        Value::U64(n) => n.into(),
        integer => integer.as_integer().and_then(|n| i64::try_from(n).ok()).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_their_spelling() {
        assert_eq!(json(Value::F32(0.1)).to_string(), "0.1");
        assert_eq!(json(Value::F32(1e-5)), serde_json::json!(1e-5));
        assert_eq!(json(Value::F32(f32::NAN)), Json::Null);
        assert_eq!(json(Value::F64(f64::INFINITY)), Json::Null);
        assert_eq!(json(Value::U64(u64::MAX)).to_string(), u64::MAX.to_string());
        assert_eq!(json(Value::I8(-3)).to_string(), "-3");
    }
}
