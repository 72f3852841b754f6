//! Models in several files, named `…-00001-of-00003.gguf` and so on.

use std::path::{Path, PathBuf};

use crate::error::{Error, Kind};
use crate::metadata::Metadata;

/// The key of a part's number, from 0.
const KEY_NO: &str = "split.no";
/// The key of the number of parts.
const KEY_COUNT: &str = "split.count";
/// The key of the number of tensors in all parts.
const KEY_TENSORS: &str = "split.tensors.count";
/// The most parts that the five digits of the names can count.
const MAX_PARTS: usize = 99_999;

/// How many files the model has whose first is `path`; 1 for a model that isn't split.
pub(crate) fn part_count(path: &Path, metadata: &Metadata) -> Result<usize, Error> {
    let count = metadata.usize(KEY_COUNT)?.unwrap_or(1);
    if count <= 1 {
        return Ok(1);
    }
    let fail = |text| Error::new(path, Kind::Split(text));
    if count > MAX_PARTS {
        return Err(fail(format!("{KEY_COUNT} is {count}, expected at most {MAX_PARTS}")));
    }
    let number = metadata.required_usize(KEY_NO)?;
    if number != 0 {
        let first = part_name(path, 0, count);
        let first = first.map_or_else(|| "the first part".to_owned(), |name| name.escape_debug().to_string());
        return Err(fail(format!(
            "this is part {} of {count}; open {first} instead",
            number.saturating_add(1)
        )));
    }
    Ok(count)
}

/// The path of part `index` (from 0), beside the first.
pub(crate) fn part_path(first: &Path, index: usize, count: usize) -> Result<PathBuf, Kind> {
    let Some(name) = part_name(first, index, count) else {
        return Err(Kind::Split(format!(
            "{KEY_COUNT} is {count}, so the name must end in -00001-of-{count:05}.gguf for the others to be found"
        )));
    };
    let path = first.with_file_name(&name);
    if !path.exists() {
        let name = name.escape_debug();
        return Err(Kind::Split(format!("part {} of {count} is missing: {name}", index + 1)));
    }
    Ok(path)
}

/// The name of part `index`, where `path` is named as a part of `count`.
fn part_name(path: &Path, index: usize, count: usize) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let stem = name.strip_suffix(&format!("-of-{count:05}.gguf"))?;
    let (prefix, number) = stem.split_at_checked(stem.len().checked_sub(6)?)?;
    let number = number.strip_prefix('-')?;
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| format!("{prefix}-{:05}-of-{count:05}.gguf", index + 1))
}

/// Checks that a later part says of itself what it was opened as.
pub(crate) fn check_part(metadata: &Metadata, index: usize, count: usize) -> Result<(), Error> {
    for (key, expected) in [(KEY_NO, index), (KEY_COUNT, count)] {
        let found = metadata.required_usize(key)?;
        if found != expected {
            return Err(metadata.value_error(key, expected.to_string(), found.to_string()));
        }
    }
    Ok(())
}

/// Checks the number of tensors in all parts against what the first part says.
pub(crate) fn check_tensor_count(metadata: &Metadata, found: usize) -> Result<(), Error> {
    match metadata.usize(KEY_TENSORS)? {
        Some(expected) if expected != found => {
            let found = format!("{found} tensors in the parts");
            Err(metadata.value_error(KEY_TENSORS, format!("{expected} tensors as it says"), found))
        }
        _ => Ok(()),
    }
}
