//! A file's metadata and tensors for people.

use std::fmt::Write;

use minfer_gguf::{GgufTensorInfo, Index, Value};

use super::{COLUMNS, fit, mib};
use crate::escape;

/// Elements of an array that are shown.
const SHOWN: usize = 8;

/// A line per key and a line per tensor.
pub(crate) fn inspect(index: &Index) -> String {
    let mut page = String::new();
    for (key, value) in index.metadata().iter() {
        let line = format!("{} = {}", escape::line(key), shown(value));
        let _ = writeln!(page, "{}", fit(&line, COLUMNS));
    }
    let _ = writeln!(page, "\n{:<48}{:>8}{:>12}  shape", "tensor", "type", "MiB");
    for tensor in index.tensors() {
        let _ = writeln!(
            page,
            "{:<48}{:>8}{:>12}  {}",
            fit(&escape::line(&tensor.name), 47),
            tensor.dtype.to_string(),
            mib(tensor.nbytes().get()),
            dimensions(tensor)
        );
    }
    let bytes = index.tensors().iter().map(|t| t.nbytes().get()).sum();
    let _ = writeln!(page, "{} tensors, {} MiB", index.tensors().len(), mib(bytes));
    page
}

fn dimensions(tensor: &GgufTensorInfo) -> String {
    tensor.shape.dims().iter().map(ToString::to_string).collect::<Vec<_>>().join(" x ")
}

fn shown(value: Value<'_>) -> String {
    match value {
        Value::Array(array) => {
            let mut items: Vec<String> = array.iter().take(SHOWN).map(shown).collect();
            if array.len() > SHOWN {
                items.push(format!("... {} in all", array.len()));
            }
            format!("[{}]", items.join(", "))
        }
        Value::Str(text) => text.to_string(),
        Value::F32(x) => x.to_string(),
        Value::F64(x) => x.to_string(),
        Value::Bool(b) => b.to_string(),
        integer => integer.as_integer().unwrap_or_default().to_string(),
    }
}
