//! Arrays of metadata values, decoded as they are iterated.

use std::fmt;

use crate::value::{Value, ValueType, first, split_string};

/// An array of metadata values of one type, decoded as it is iterated.
#[derive(Clone, Copy)]
pub struct Array<'a> {
    element: ValueType,
    len: usize,
    data: &'a [u8],
}

impl<'a> Array<'a> {
    /// Elements.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The type of the elements.
    #[must_use]
    pub const fn element_type(&self) -> ValueType {
        self.element
    }

    /// The elements.
    #[must_use]
    pub const fn iter(&self) -> Values<'a> {
        Values { element: self.element, left: self.len, data: self.data }
    }

    /// The elements of an array of strings, as bytes; `None` for another array.
    #[must_use]
    pub fn byte_strings(&self) -> Option<ByteStrings<'a>> {
        (self.element == ValueType::String).then_some(ByteStrings { left: self.len, data: self.data })
    }

    /// The elements of an array of strings; `None` for another array, or where one isn't UTF-8.
    #[must_use]
    pub fn strings(&self) -> Option<Vec<&'a str>> {
        let strings = self.byte_strings()?;
        // Vocabularies are large: one allocation, of a length that the file's bytes have confirmed.
        let mut out = Vec::with_capacity(self.len);
        for bytes in strings {
            out.push(std::str::from_utf8(bytes).ok()?);
        }
        Some(out)
    }

    /// The numbers of an array of `f32` or `f64`, rounded to `f32`; `None` for another array.
    #[must_use]
    pub fn f32s(&self) -> Option<Vec<f32>> {
        match self.element {
            ValueType::F32 => Some(self.data.as_chunks().0.iter().map(|&x| f32::from_le_bytes(x)).collect()),
            _ => self.iter().map(|value| value.as_f32()).collect(),
        }
    }

    /// The numbers of an array of any integer type; `None` for another array, or where one is no `T`.
    #[must_use]
    pub fn integers<T: TryFrom<i128>>(&self) -> Option<Vec<T>> {
        self.iter().map(|value| T::try_from(value.as_integer()?).ok()).collect()
    }

    /// As [`Array::integers`].
    #[must_use]
    pub fn i32s(&self) -> Option<Vec<i32>> {
        self.integers()
    }

    /// As [`Array::integers`].
    #[must_use]
    pub fn u32s(&self) -> Option<Vec<u32>> {
        self.integers()
    }

    /// The array whose element type is at the start of `data` and whose last element is at the end.
    pub(crate) fn whole(data: &'a [u8]) -> Self {
        let id = u32::from_le_bytes(first(data));
        let len = u64::from_le_bytes(first(&data[4..])) as usize;
        Self { element: ValueType::from_id(id).unwrap_or(ValueType::U8), len, data: &data[12..] }
    }

    /// The array whose element type is at the start of `data`, and the data after its last element.
    pub(crate) fn split(data: &'a [u8]) -> (Self, &'a [u8]) {
        let array = Self::whole(data);
        let rest = match array.element.fixed_len() {
            Some(each) => &array.data[array.len * each..],
            None => array.iter().skip_all(),
        };
        (Self { data: &array.data[..array.data.len() - rest.len()], ..array }, rest)
    }
}

impl fmt::Debug for Array<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> IntoIterator for Array<'a> {
    type Item = Value<'a>;
    type IntoIter = Values<'a>;

    fn into_iter(self) -> Values<'a> {
        self.iter()
    }
}

/// The elements of an [`Array`].
#[derive(Clone, Debug)]
pub struct Values<'a> {
    element: ValueType,
    left: usize,
    data: &'a [u8],
}

impl<'a> Values<'a> {
    /// The data after the last element.
    fn skip_all(mut self) -> &'a [u8] {
        self.by_ref().for_each(drop);
        self.data
    }
}

impl<'a> Iterator for Values<'a> {
    type Item = Value<'a>;

    #[inline]
    fn next(&mut self) -> Option<Value<'a>> {
        self.left = self.left.checked_sub(1)?;
        let (value, rest) = Value::split(self.element, self.data);
        self.data = rest;
        Some(value)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Values<'_> {}

/// The elements of an [`Array`] of strings, as bytes.
#[derive(Clone, Debug)]
pub struct ByteStrings<'a> {
    left: usize,
    data: &'a [u8],
}

impl<'a> Iterator for ByteStrings<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        self.left = self.left.checked_sub(1)?;
        let (bytes, rest) = split_string(self.data);
        self.data = rest;
        Some(bytes)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for ByteStrings<'_> {}
