//! Writing files.

use std::borrow::Cow;
use std::io::{self, Write};

use minfer_tensor::{DType, Shape};

use crate::value::{Value, ValueType};
use crate::{DEFAULT_ALIGNMENT, KEY_ALIGNMENT, MAGIC};

/// A metadata value to write.
#[derive(Clone, Debug, PartialEq)]
pub enum OwnedValue {
    /// `u8`
    U8(u8),
    /// `i8`
    I8(i8),
    /// `u16`
    U16(u16),
    /// `i16`
    I16(i16),
    /// `u32`
    U32(u32),
    /// `i32`
    I32(i32),
    /// `u64`
    U64(u64),
    /// `i64`
    I64(i64),
    /// `f32`
    F32(f32),
    /// `f64`
    F64(f64),
    /// `bool`
    Bool(bool),
    /// Bytes, UTF-8 by convention.
    Str(Vec<u8>),
    /// Values that must all have this type.
    Array(ValueType, Vec<OwnedValue>),
}

impl OwnedValue {
    /// The type.
    #[must_use]
    pub const fn value_type(&self) -> ValueType {
        match self {
            Self::U8(_) => ValueType::U8,
            Self::I8(_) => ValueType::I8,
            Self::U16(_) => ValueType::U16,
            Self::I16(_) => ValueType::I16,
            Self::U32(_) => ValueType::U32,
            Self::I32(_) => ValueType::I32,
            Self::U64(_) => ValueType::U64,
            Self::I64(_) => ValueType::I64,
            Self::F32(_) => ValueType::F32,
            Self::F64(_) => ValueType::F64,
            Self::Bool(_) => ValueType::Bool,
            Self::Str(_) => ValueType::String,
            Self::Array(..) => ValueType::Array,
        }
    }

    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::U8(x) => out.extend(x.to_le_bytes()),
            Self::I8(x) => out.extend(x.to_le_bytes()),
            Self::U16(x) => out.extend(x.to_le_bytes()),
            Self::I16(x) => out.extend(x.to_le_bytes()),
            Self::U32(x) => out.extend(x.to_le_bytes()),
            Self::I32(x) => out.extend(x.to_le_bytes()),
            Self::U64(x) => out.extend(x.to_le_bytes()),
            Self::I64(x) => out.extend(x.to_le_bytes()),
            Self::F32(x) => out.extend(x.to_le_bytes()),
            Self::F64(x) => out.extend(x.to_le_bytes()),
            Self::Bool(x) => out.push(u8::from(*x)),
            Self::Str(bytes) => put_string(out, bytes),
            Self::Array(element, values) => {
                out.extend(element.id().to_le_bytes());
                out.extend((values.len() as u64).to_le_bytes());
                values.iter().for_each(|value| value.put(out));
            }
        }
    }
}

macro_rules! from_plain {
    ($($variant:ident: $ty:ty),*) => {$(
        impl From<$ty> for OwnedValue {
            fn from(x: $ty) -> Self {
                Self::$variant(x)
            }
        }

        impl From<&[$ty]> for OwnedValue {
            fn from(values: &[$ty]) -> Self {
                Self::Array(ValueType::$variant, values.iter().map(|&x| x.into()).collect())
            }
        }

        impl From<Vec<$ty>> for OwnedValue {
            fn from(values: Vec<$ty>) -> Self {
                values.as_slice().into()
            }
        }
    )*};
}
from_plain!(U8: u8, I8: i8, U16: u16, I16: i16, U32: u32, I32: i32, U64: u64, I64: i64, F32: f32, F64: f64, Bool: bool);

impl From<&str> for OwnedValue {
    fn from(text: &str) -> Self {
        Self::Str(text.as_bytes().to_vec())
    }
}

impl From<String> for OwnedValue {
    fn from(text: String) -> Self {
        Self::Str(text.into_bytes())
    }
}

impl<S: AsRef<str>> FromIterator<S> for OwnedValue {
    fn from_iter<I: IntoIterator<Item = S>>(texts: I) -> Self {
        Self::Array(ValueType::String, texts.into_iter().map(|text| text.as_ref().into()).collect())
    }
}

impl From<Value<'_>> for OwnedValue {
    fn from(value: Value<'_>) -> Self {
        match value {
            Value::U8(x) => Self::U8(x),
            Value::I8(x) => Self::I8(x),
            Value::U16(x) => Self::U16(x),
            Value::I16(x) => Self::I16(x),
            Value::U32(x) => Self::U32(x),
            Value::I32(x) => Self::I32(x),
            Value::U64(x) => Self::U64(x),
            Value::I64(x) => Self::I64(x),
            Value::F32(x) => Self::F32(x),
            Value::F64(x) => Self::F64(x),
            Value::Bool(x) => Self::Bool(x),
            Value::Str(text) => Self::Str(text.as_bytes().to_vec()),
            Value::Array(array) => {
                Self::Array(array.element_type(), array.into_iter().map(Self::from).collect())
            }
        }
    }
}

/// Builds a file. Tensor data may be borrowed, so that a model needn't be in memory twice.
///
/// Writes what it is told, wrong or not: tests of the reader need wrong files too.
#[derive(Clone, Debug)]
pub struct Writer<'a> {
    version: u32,
    alignment: u32,
    pairs: Vec<(String, OwnedValue)>,
    tensors: Vec<Tensor<'a>>,
}

#[derive(Clone, Debug)]
struct Tensor<'a> {
    name: String,
    dtype: DType,
    shape: Shape,
    data: Cow<'a, [u8]>,
}

impl Default for Writer<'_> {
    fn default() -> Self {
        Self { version: 3, alignment: DEFAULT_ALIGNMENT, pairs: Vec::new(), tensors: Vec::new() }
    }
}

impl<'a> Writer<'a> {
    /// An empty file of version 3.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes another version; 2 and 3 have the same layout.
    #[must_use]
    pub fn version(mut self, version: u32) -> Self {
        self.version = version;
        self
    }

    /// Aligns tensor data to `alignment` bytes (at least 1), and says so in the metadata.
    #[must_use]
    pub fn alignment(mut self, alignment: u32) -> Self {
        self.alignment = alignment.max(1);
        self.kv(KEY_ALIGNMENT, alignment)
    }

    /// Adds a pair.
    #[must_use]
    pub fn kv(mut self, key: impl Into<String>, value: impl Into<OwnedValue>) -> Self {
        self.pairs.push((key.into(), value.into()));
        self
    }

    /// Adds a tensor with its encoded data.
    #[must_use]
    pub fn tensor(
        mut self,
        name: impl Into<String>,
        dtype: DType,
        shape: Shape,
        data: impl Into<Cow<'a, [u8]>>,
    ) -> Self {
        self.tensors.push(Tensor { name: name.into(), dtype, shape, data: data.into() });
        self
    }

    /// The whole file.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = self.header();
        for tensor in &self.tensors {
            out.extend_from_slice(&tensor.data);
            out.resize(self.align(out.len()), 0);
        }
        out
    }

    /// Writes the whole file, tensor by tensor.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_to(&self, mut out: impl Write) -> io::Result<()> {
        out.write_all(&self.header())?;
        for tensor in &self.tensors {
            out.write_all(&tensor.data)?;
            let padding = self.align(tensor.data.len()) - tensor.data.len();
            io::copy(&mut io::Read::take(io::repeat(0), padding as u64), &mut out)?;
        }
        out.flush()
    }

    /// Everything before the tensor data, padded.
    fn header(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend(MAGIC);
        out.extend(self.version.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.pairs.len() as u64).to_le_bytes());
        for (key, value) in &self.pairs {
            put_string(&mut out, key.as_bytes());
            out.extend(value.value_type().id().to_le_bytes());
            value.put(&mut out);
        }
        let mut offset = 0;
        for tensor in &self.tensors {
            put_string(&mut out, tensor.name.as_bytes());
            out.extend((tensor.shape.dims().len() as u32).to_le_bytes());
            tensor.shape.dims().iter().for_each(|&dim| out.extend((dim as u64).to_le_bytes()));
            out.extend(tensor.dtype.ggml_id().to_le_bytes());
            out.extend((offset as u64).to_le_bytes());
            offset = self.align(offset + tensor.data.len());
        }
        out.resize(self.align(out.len()), 0);
        out
    }

    fn align(&self, len: usize) -> usize {
        len.next_multiple_of(self.alignment as usize)
    }
}

fn put_string(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u64).to_le_bytes());
    out.extend(bytes);
}
