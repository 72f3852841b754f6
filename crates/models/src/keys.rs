//! Keys of an architecture: every value read within its bounds, every message with the key in full.

use std::fmt::Display;

use minfer_gguf::{Metadata, Value};

use crate::error::ModelError;

type Result<T> = std::result::Result<T, ModelError>;

const COUNT: &str = "a count from 1 to 2147483647";
const POSITIVE: &str = "a finite number above 0";

/// Metadata under the name of an architecture.
pub(crate) struct Keys<'a> {
    meta: &'a Metadata,
    architecture: &'static str,
}

impl<'a> Keys<'a> {
    pub(crate) fn new(meta: &'a Metadata, architecture: &'static str) -> Self {
        Self { meta, architecture }
    }

    /// The key in full: `llama.block_count`.
    fn full(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }

    /// The error of a value that makes no sense.
    pub(crate) fn error(&self, key: &str, expected: &str, found: impl Display) -> ModelError {
        self.meta.value_error(&self.full(key), expected, found.to_string()).into()
    }

    /// The error of a value that makes sense, but not here.
    pub(crate) fn unsupported(&self, key: &str, found: impl Display, what: &'static str) -> ModelError {
        ModelError::Unsupported { key: self.full(key), found: found.to_string(), what }
    }

    pub(crate) fn str(&self, key: &str) -> Result<Option<&'a str>> {
        Ok(self.meta.str(&self.full(key))?)
    }

    pub(crate) fn bool(&self, key: &str) -> Result<Option<bool>> {
        Ok(self.meta.bool(&self.full(key))?)
    }

    /// A count from 1 on.
    pub(crate) fn count(&self, key: &str) -> Result<Option<usize>> {
        self.meta.u64(&self.full(key))?.map(|n| self.in_bounds(key, n)).transpose()
    }

    /// A count from 1 on that must be there.
    pub(crate) fn required_count(&self, key: &str) -> Result<usize> {
        self.in_bounds(key, self.meta.required_u64(&self.full(key))?)
    }

    /// A count from 1 on; 0 means that there is none.
    pub(crate) fn count_or_off(&self, key: &str) -> Result<Option<usize>> {
        match self.meta.u64(&self.full(key))? {
            Some(0) => Ok(None),
            _ => self.count(key),
        }
    }

    /// A count for each block: one for all, or an array with an entry a block.
    pub(crate) fn per_layer(&self, key: &str, n_layers: usize) -> Result<Option<Vec<usize>>> {
        let full = self.full(key);
        if !matches!(self.meta.get(&full), Some(Value::Array(_))) {
            return Ok(self.count(key)?.map(|n| vec![n; n_layers]));
        }
        let entries = self.meta.required_u32s(&full)?;
        self.expect_entries(key, entries.len(), n_layers)?;
        entries.into_iter().map(|n| self.in_bounds(key, n.into())).collect::<Result<_>>().map(Some)
    }

    /// As [`per_layer`](Self::per_layer), where the key must be there.
    pub(crate) fn required_per_layer(&self, key: &str, n_layers: usize) -> Result<Vec<usize>> {
        match self.per_layer(key, n_layers)? {
            Some(counts) => Ok(counts),
            None => self.required_count(key).map(|n| vec![n; n_layers]),
        }
    }

    /// A finite number above 0.
    pub(crate) fn positive(&self, key: &str) -> Result<Option<f32>> {
        self.meta.f32(&self.full(key))?.map(|x| self.above_zero(key, x)).transpose()
    }

    /// A finite number above 0 that must be there.
    pub(crate) fn required_positive(&self, key: &str) -> Result<f32> {
        self.above_zero(key, self.meta.required_f32(&self.full(key))?)
    }

    /// A finite number above 0; 0 means that there is none.
    pub(crate) fn positive_or_off(&self, key: &str) -> Result<Option<f32>> {
        match self.meta.f32(&self.full(key))? {
            Some(0.0) => Ok(None),
            _ => self.positive(key),
        }
    }

    /// Which blocks see a window only: an array with an entry a block, or a period whose last block does not.
    pub(crate) fn window_pattern(&self, key: &str, n_layers: usize, period: usize) -> Result<Vec<bool>> {
        let Some(Value::Array(array)) = self.meta.get(&self.full(key)) else {
            let period = self.count(key)?.unwrap_or(period);
            return Ok((1..=n_layers).map(|block| !block.is_multiple_of(period)).collect());
        };
        self.expect_entries(key, array.len(), n_layers)?;
        let flag = |value: Value<'_>| value.as_bool().or_else(|| value.as_integer().map(|n| n != 0));
        let flags: Option<Vec<bool>> = array.iter().map(flag).collect();
        flags.ok_or_else(|| self.error(key, "bools or integers", array.element_type()))
    }

    fn in_bounds(&self, key: &str, n: u64) -> Result<usize> {
        match i32::try_from(n) {
            Ok(count @ 1..) => Ok(count as usize),
            _ => Err(self.error(key, COUNT, n)),
        }
    }

    fn above_zero(&self, key: &str, x: f32) -> Result<f32> {
        if x.is_finite() && x > 0.0 { Ok(x) } else { Err(self.error(key, POSITIVE, x)) }
    }

    fn expect_entries(&self, key: &str, found: usize, n_layers: usize) -> Result<()> {
        if found == n_layers {
            return Ok(());
        }
        let expected = format!("an entry for each of the {n_layers} blocks");
        Err(self.error(key, &expected, format!("{found} entries")))
    }
}
