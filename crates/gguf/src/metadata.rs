//! The key-value pairs of a file.

use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::array::Array;
use crate::error::{Error, Kind};
use crate::value::{Value, ValueType};
use crate::{DEFAULT_ALIGNMENT, KEY_ALIGNMENT, KEY_ARCHITECTURE};

/// The alignments that a file can ask for: the specification wants multiples of 8.
const ALIGNMENTS: Range<u32> = 8..(1 << 20) + 1;

/// The metadata of a model, in the order of the file, decoded on access.
///
/// Typed getters come in pairs: `u32(key)` is `None` where the key is missing, `required_u32(key)` an error.
/// Counts may have any integer type, reals either floating-point type.
#[derive(Debug)]
pub struct Metadata {
    path: PathBuf,
    buf: Vec<u8>,
    entries: Vec<Entry>,
    /// Indices of `entries`, sorted by key.
    by_key: Vec<usize>,
}

/// Where a pair lies in the buffer.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: Range<usize>,
    pub(crate) ty: ValueType,
    pub(crate) value: Range<usize>,
}

impl Metadata {
    /// The pairs that `entries` finds in `buf`.
    pub(crate) fn new(path: &Path, buf: Vec<u8>, entries: Vec<Entry>) -> Result<Self, Kind> {
        let mut by_key: Vec<usize> = (0..entries.len()).collect();
        by_key.sort_by_key(|&i| &buf[entries[i].key.clone()]);
        let metadata = Self { path: path.to_path_buf(), buf, entries, by_key };
        let twice = metadata.by_key.windows(2).find(|pair| metadata.key(pair[0]) == metadata.key(pair[1]));
        match twice {
            Some(pair) => Err(Kind::DuplicateKey { key: metadata.key(pair[0]).to_owned() }),
            None => Ok(metadata),
        }
    }

    /// Pairs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no pairs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The pairs in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Value<'_>)> {
        (0..self.entries.len()).map(|i| (self.key(i), self.value(i)))
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Value<'_>> {
        let found = self.by_key.binary_search_by(|&i| self.key(i).cmp(key)).ok()?;
        Some(self.value(self.by_key[found]))
    }

    /// The name of the model's architecture.
    ///
    /// # Errors
    /// Where it is missing or no string.
    pub fn architecture(&self) -> Result<&str, Error> {
        self.required_str(KEY_ARCHITECTURE)
    }

    /// The alignment of tensor data, in bytes.
    ///
    /// # Errors
    /// Where it is no power of two from 8 to 1 MiB.
    pub fn alignment(&self) -> Result<u32, Error> {
        let alignment = self.u32(KEY_ALIGNMENT)?.unwrap_or(DEFAULT_ALIGNMENT);
        if alignment.is_power_of_two() && ALIGNMENTS.contains(&alignment) {
            return Ok(alignment);
        }
        let expected = format!("a power of two from {} to {}", ALIGNMENTS.start, ALIGNMENTS.end - 1);
        Err(self.value_error(KEY_ALIGNMENT, expected, alignment.to_string()))
    }

    /// An error about the value of `key`, for what only the reader of the metadata can check.
    ///
    /// `expected` and `found` are in words, text from the file [quoted](crate::quote).
    #[must_use]
    pub fn value_error(&self, key: &str, expected: impl Into<String>, found: impl Into<String>) -> Error {
        self.error(Kind::Value { key: key.to_owned(), expected: expected.into(), found: found.into() })
    }

    /// Bytes of heap that the metadata takes.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.buf.capacity()
            + self.entries.capacity() * size_of::<Entry>()
            + self.by_key.capacity() * size_of::<usize>()
    }

    fn key(&self, entry: usize) -> &str {
        // Checked by the parser; an impossible key finds nothing.
        std::str::from_utf8(&self.buf[self.entries[entry].key.clone()]).unwrap_or_default()
    }

    fn value(&self, entry: usize) -> Value<'_> {
        let entry = &self.entries[entry];
        Value::whole(entry.ty, &self.buf[entry.value.clone()])
    }

    fn get_as<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<Option<T>, Error> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match T::from_value(value) {
            Some(value) => Ok(Some(value)),
            None => Err(self.value_error(key, T::EXPECTED, value.to_string())),
        }
    }

    fn require<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<T, Error> {
        self.get_as(key)?.ok_or_else(|| self.error(Kind::Missing { key: key.to_owned() }))
    }

    fn error(&self, kind: Kind) -> Error {
        Error::new(&self.path, kind)
    }
}

/// What a getter can return.
trait FromValue<'a>: Sized {
    const EXPECTED: &'static str;

    fn from_value(value: Value<'a>) -> Option<Self>;
}

/// Defines a pair of getters and how they take a value.
macro_rules! getters {
    ($($get:ident, $require:ident: $ty:ty, $expected:literal, $from:expr;)*) => {$(
        impl<'a> FromValue<'a> for $ty {
            const EXPECTED: &'static str = $expected;

            fn from_value(value: Value<'a>) -> Option<Self> {
                let from: fn(Value<'a>) -> Option<Self> = $from;
                from(value)
            }
        }

        impl<'a> Metadata {
            #[doc = concat!("The value of a key: ", $expected, ".\n\n# Errors\nWhere it is something else.")]
            pub fn $get(&'a self, key: &str) -> Result<Option<$ty>, Error> {
                self.get_as(key)
            }

            #[doc = concat!("As [`Metadata::", stringify!($get), "`].\n\n# Errors\nAlso where the key is missing.")]
            pub fn $require(&'a self, key: &str) -> Result<$ty, Error> {
                self.require(key)
            }
        }
    )*};
}

getters! {
    bool, required_bool: bool, "a bool", |value| value.as_bool();
    u32, required_u32: u32, "an integer from 0 to 4294967295", |value| value.as_u64()?.try_into().ok();
    u64, required_u64: u64, "an integer that is not negative", |value| value.as_u64();
    usize, required_usize: usize, "an integer that is not negative", |value| value.as_u64()?.try_into().ok();
    i32, required_i32: i32, "an integer of 32 bits", |value| value.as_integer()?.try_into().ok();
    f32, required_f32: f32, "an f32 or f64", |value| value.as_f32();
    str, required_str: &'a str, "a UTF-8 string", |value| value.as_str();
    array, required_array: Array<'a>, "an array", |value| value.as_array();
    strings, required_strings: Vec<&'a str>, "an array of UTF-8 strings", |value| value.as_array()?.strings();
    f32s, required_f32s: Vec<f32>, "an array of f32 or f64", |value| value.as_array()?.f32s();
    i32s, required_i32s: Vec<i32>, "an array of 32-bit integers", |value| value.as_array()?.i32s();
    u32s, required_u32s: Vec<u32>, "an array of integers from 0 to 4294967295", |value| value.as_array()?.u32s();
    bools, required_bools: Vec<bool>, "an array of bools", |value| value.as_array()?.iter().map(|b| b.as_bool()).collect();
}
