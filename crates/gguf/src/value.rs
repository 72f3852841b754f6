//! Metadata values, decoded where they lie.

use std::fmt;

use crate::array::Array;
use crate::text::Text;

/// The types of metadata values, by their numbers in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum ValueType {
    /// `u8`
    U8 = 0,
    /// `i8`
    I8 = 1,
    /// `u16`
    U16 = 2,
    /// `i16`
    I16 = 3,
    /// `u32`
    U32 = 4,
    /// `i32`
    I32 = 5,
    /// `f32`
    F32 = 6,
    /// A byte of 0 or 1.
    Bool = 7,
    /// A length and as many bytes.
    String = 8,
    /// A type, a count and as many values.
    Array = 9,
    /// `u64`
    U64 = 10,
    /// `i64`
    I64 = 11,
    /// `f64`
    F64 = 12,
}

impl ValueType {
    /// The type with this number in a file.
    #[must_use]
    pub const fn from_id(id: u32) -> Option<Self> {
        Some(match id {
            0 => Self::U8,
            1 => Self::I8,
            2 => Self::U16,
            3 => Self::I16,
            4 => Self::U32,
            5 => Self::I32,
            6 => Self::F32,
            7 => Self::Bool,
            8 => Self::String,
            9 => Self::Array,
            10 => Self::U64,
            11 => Self::I64,
            12 => Self::F64,
            _ => return None,
        })
    }

    /// The number in a file.
    #[must_use]
    pub const fn id(self) -> u32 {
        self as u32
    }

    /// The name in messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::U8 => "u8",
            Self::I8 => "i8",
            Self::U16 => "u16",
            Self::I16 => "i16",
            Self::U32 => "u32",
            Self::I32 => "i32",
            Self::F32 => "f32",
            Self::Bool => "bool",
            Self::String => "string",
            Self::Array => "array",
            Self::U64 => "u64",
            Self::I64 => "i64",
            Self::F64 => "f64",
        }
    }

    /// Bytes of a value, `None` where values differ in length.
    #[must_use]
    pub const fn fixed_len(self) -> Option<usize> {
        match self {
            Self::U8 | Self::I8 | Self::Bool => Some(1),
            Self::U16 | Self::I16 => Some(2),
            Self::U32 | Self::I32 | Self::F32 => Some(4),
            Self::U64 | Self::I64 | Self::F64 => Some(8),
            Self::String | Self::Array => None,
        }
    }

    /// The fewest bytes that a value can take.
    pub(crate) const fn min_len(self) -> u64 {
        match self {
            Self::String => 8,
            Self::Array => 12,
            Self::U8 | Self::I8 | Self::Bool => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A metadata value. Strings and arrays borrow the index.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
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
    Str(Text<'a>),
    /// Values of one type.
    Array(Array<'a>),
}

impl<'a> Value<'a> {
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
            Self::Array(_) => ValueType::Array,
        }
    }

    /// An integer of any type.
    #[must_use]
    pub fn as_integer(&self) -> Option<i128> {
        Some(match *self {
            Self::U8(n) => n.into(),
            Self::I8(n) => n.into(),
            Self::U16(n) => n.into(),
            Self::I16(n) => n.into(),
            Self::U32(n) => n.into(),
            Self::I32(n) => n.into(),
            Self::U64(n) => n.into(),
            Self::I64(n) => n.into(),
            _ => return None,
        })
    }

    /// An integer of any type that is a `u64`.
    #[must_use]
    pub fn as_u64(&self) -> Option<u64> {
        u64::try_from(self.as_integer()?).ok()
    }

    /// A number of either floating-point type, rounded to `f32`.
    #[must_use]
    pub fn as_f32(&self) -> Option<f32> {
        match *self {
            Self::F32(x) => Some(x),
            Self::F64(x) => Some(x as f32),
            _ => None,
        }
    }

    /// A boolean.
    #[must_use]
    pub const fn as_bool(&self) -> Option<bool> {
        if let Self::Bool(b) = *self { Some(b) } else { None }
    }

    /// A string that is UTF-8.
    #[must_use]
    pub fn as_str(&self) -> Option<&'a str> {
        if let Self::Str(text) = self { text.to_str().ok() } else { None }
    }

    /// An array.
    #[must_use]
    pub const fn as_array(&self) -> Option<Array<'a>> {
        if let Self::Array(array) = *self { Some(array) } else { None }
    }

    /// The value that `data` is. The parser has checked that it is there.
    pub(crate) fn whole(ty: ValueType, data: &'a [u8]) -> Self {
        match ty {
            // Its end is known, so it needn't be searched for.
            ValueType::Array => Self::Array(Array::whole(data)),
            _ => Self::split(ty, data).0,
        }
    }

    /// The value at the start of `data`, and the data after it.
    pub(crate) fn split(ty: ValueType, data: &'a [u8]) -> (Self, &'a [u8]) {
        match ty {
            ValueType::String => {
                let (text, rest) = split_string(data);
                (Self::Str(Text(text)), rest)
            }
            ValueType::Array => {
                let (array, rest) = Array::split(data);
                (Self::Array(array), rest)
            }
            _ => {
                let (bytes, rest) = data.split_at(ty.min_len() as usize);
                (Self::fixed(ty, bytes), rest)
            }
        }
    }

    fn fixed(ty: ValueType, bytes: &[u8]) -> Self {
        match ty {
            ValueType::U8 => Self::U8(bytes[0]),
            ValueType::I8 => Self::I8(bytes[0] as i8),
            ValueType::U16 => Self::U16(u16::from_le_bytes(first(bytes))),
            ValueType::I16 => Self::I16(i16::from_le_bytes(first(bytes))),
            ValueType::U32 => Self::U32(u32::from_le_bytes(first(bytes))),
            ValueType::I32 => Self::I32(i32::from_le_bytes(first(bytes))),
            ValueType::F32 => Self::F32(f32::from_le_bytes(first(bytes))),
            ValueType::U64 => Self::U64(u64::from_le_bytes(first(bytes))),
            ValueType::I64 => Self::I64(i64::from_le_bytes(first(bytes))),
            ValueType::F64 => Self::F64(f64::from_le_bytes(first(bytes))),
            ValueType::Bool | ValueType::String | ValueType::Array => Self::Bool(bytes[0] != 0),
        }
    }
}

/// What a value is, for a message: its type, and the value where that is short.
impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::F32(x) => write!(f, "f32 {x}"),
            Self::F64(x) => write!(f, "f64 {x}"),
            Self::Bool(b) => write!(f, "bool {b}"),
            Self::Str(text) => write!(f, "string {text}"),
            Self::Array(array) => write!(f, "array of {} {}", array.len(), array.element_type()),
            _ => write!(f, "{} {}", self.value_type(), self.as_integer().unwrap_or_default()),
        }
    }
}

/// The first `N` bytes.
#[inline]
pub(crate) fn first<const N: usize>(bytes: &[u8]) -> [u8; N] {
    std::array::from_fn(|i| bytes[i])
}

/// The string whose length is at the start of `data`, and the data after it.
#[inline]
pub(crate) fn split_string(data: &[u8]) -> (&[u8], &[u8]) {
    let len = u64::from_le_bytes(first(data)) as usize;
    data[8..].split_at(len)
}
