//! From bytes to a checked header: counts, keys, values, tensor infos.

use minfer_tensor::Bytes;

use crate::error::{Kind, TensorProblem};
use crate::metadata::Entry;
use crate::reader::{ReadError, Reader};
use crate::tensor::RawInfo;
use crate::text::{Text, quote};
use crate::value::ValueType;

/// Bytes of the shortest pair: the length and one character of a key, a type, a value.
const MIN_PAIR: u64 = 8 + 1 + 4 + 1;
/// Bytes of the shortest tensor info: the length and one character of a name, one dimension, type, offset.
const MIN_INFO: u64 = 8 + 1 + 4 + 8 + 4 + 8;
/// The most pairs and tensors that are read: a hundred times what models have. Without it, a large file of tiny
/// pairs would take many times its length in memory.
const MAX_PAIRS: u64 = 1 << 16;
/// As `MAX_PAIRS`.
const MAX_TENSORS: u64 = 1 << 18;
/// Bytes of the longest key and name; the specification allows 65,535 for keys.
const MAX_NAME: u64 = 65_535;
/// Arrays within arrays that are read.
const MAX_NESTING: u32 = 8;

/// A header as it was read: metadata checked, tensor infos only as far as they stand alone.
#[derive(Debug)]
pub(crate) struct Header {
    pub(crate) entries: Vec<Entry>,
    pub(crate) infos: Vec<RawInfo>,
}

/// Reads everything before the tensor data.
pub(crate) fn header(reader: &mut Reader<'_>) -> Result<Header, Kind> {
    magic_and_version(reader)?;
    let within = |error: ReadError| error.within(|| "the header".to_owned());
    let n_tensors = reader.u64().map_err(within)?;
    let n_pairs = reader.u64().map_err(within)?;
    check_count("metadata key", n_pairs, MAX_PAIRS.min(reader.left() / MIN_PAIR))?;
    let entries = (0..n_pairs).map(|i| pair(reader, i, n_pairs)).collect::<Result<_, _>>()?;
    check_count("tensor", n_tensors, MAX_TENSORS.min(reader.left() / MIN_INFO))?;
    let infos = (0..n_tensors).map(|i| info(reader, i, n_tensors)).collect::<Result<_, _>>()?;
    Ok(Header { entries, infos })
}

fn magic_and_version(reader: &mut Reader<'_>) -> Result<(), Kind> {
    if reader.file_len() == 0 {
        return Err(Kind::Empty);
    }
    let magic: [u8; 4] = reader.array().map_err(|error| error.within(|| "the magic".to_owned()))?;
    if magic != crate::MAGIC {
        return Err(if &magic == b"vers" { Kind::LfsPointer } else { Kind::Magic { magic } });
    }
    let version = reader.u32().map_err(|error| error.within(|| "the version in the header".to_owned()))?;
    match version {
        2 | 3 => Ok(()),
        _ if (1..=3).contains(&version.swap_bytes()) => Err(Kind::BigEndian),
        _ => Err(Kind::Version { found: version }),
    }
}

fn check_count(what: &'static str, found: u64, possible: u64) -> Result<(), Kind> {
    if found > possible { Err(Kind::Count { what, found, possible }) } else { Ok(()) }
}

fn pair(reader: &mut Reader<'_>, index: u64, count: u64) -> Result<Entry, Kind> {
    let what = || format!("metadata key {} of {count}", index + 1);
    let key = name(reader, what)?;
    let key_end = reader.pos();
    let key_range = key_end - key.len()..key_end;
    let within = |error: ReadError| error.within(|| format!("the value of metadata key {}", quote(&key)));
    let id = reader.u32().map_err(within)?;
    let Some(ty) = ValueType::from_id(id) else { return Err(Kind::ValueType { key, id }) };
    let start = reader.pos();
    skip_value(reader, ty, 0).map_err(|problem| problem.of_key(&key))?;
    Ok(Entry { key: key_range, ty, value: start..reader.pos() })
}

/// A key or the name of a tensor.
fn name(reader: &mut Reader<'_>, what: impl Fn() -> String) -> Result<String, Kind> {
    let within = |error: ReadError| error.within(|| format!("the length of {}", what()));
    let len = reader.u64().map_err(within)?;
    if len == 0 || len > MAX_NAME {
        let problem = format!("its length is {len} bytes, expected 1 to {MAX_NAME}");
        return Err(Kind::Name { what: what(), problem });
    }
    let bytes = reader.take(len).map_err(|error| error.within(&what))?;
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text.to_owned()),
        Err(_) => Err(Kind::Name { what: what(), problem: format!("{} is not UTF-8", Text(bytes)) }),
    }
}

/// What is wrong with a value, before its key is known.
enum ValueProblem {
    Read(ReadError),
    Type(u32),
    Bool(u8),
    Nesting,
}

impl From<ReadError> for ValueProblem {
    fn from(error: ReadError) -> Self {
        Self::Read(error)
    }
}

impl ValueProblem {
    fn of_key(self, key: &str) -> Kind {
        let key = key.to_owned();
        match self {
            Self::Read(error) => error.within(|| format!("the value of metadata key {}", quote(&key))),
            Self::Type(id) => Kind::ValueType { key, id },
            Self::Nesting => Kind::Nesting { key, limit: MAX_NESTING },
            Self::Bool(byte) => Kind::Value {
                key,
                expected: "a bool of 0 or 1".to_owned(),
                found: format!("a bool of {byte}"),
            },
        }
    }
}

/// Steps over a value and checks all of it.
fn skip_value(reader: &mut Reader<'_>, ty: ValueType, depth: u32) -> Result<(), ValueProblem> {
    match ty {
        ValueType::String => {
            let len = reader.u64()?;
            reader.take(len)?;
        }
        ValueType::Array => skip_array(reader, depth)?,
        _ => skip_fixed(reader, ty, 1)?,
    }
    Ok(())
}

fn skip_array(reader: &mut Reader<'_>, depth: u32) -> Result<(), ValueProblem> {
    if depth == MAX_NESTING {
        return Err(ValueProblem::Nesting);
    }
    let id = reader.u32()?;
    let element = ValueType::from_id(id).ok_or(ValueProblem::Type(id))?;
    let len = reader.u64()?;
    if element.fixed_len().is_some() {
        return skip_fixed(reader, element, len);
    }
    let need = len.saturating_mul(element.min_len());
    if need > reader.left() {
        return Err(ReadError::Short { offset: reader.pos() as u64, need, left: reader.left() }.into());
    }
    (0..len).try_for_each(|_| skip_value(reader, element, depth + 1))
}

fn skip_fixed(reader: &mut Reader<'_>, ty: ValueType, count: u64) -> Result<(), ValueProblem> {
    let bytes = reader.take(count.saturating_mul(ty.min_len()))?;
    match bytes.iter().find(|&&byte| ty == ValueType::Bool && byte > 1) {
        Some(&byte) => Err(ValueProblem::Bool(byte)),
        None => Ok(()),
    }
}

fn info(reader: &mut Reader<'_>, index: u64, count: u64) -> Result<RawInfo, Kind> {
    let name = name(reader, || format!("the name of tensor {} of {count}", index + 1))?;
    let within = |error: ReadError| error.within(|| format!("the info of tensor {}", quote(&name)));
    let n_dims = reader.u32().map_err(within)?;
    if !(1..=minfer_tensor::MAX_DIMS as u32).contains(&n_dims) {
        return Err(Kind::Tensor { name, problem: TensorProblem::Dims { found: n_dims } });
    }
    let dims = (0..n_dims).map(|_| reader.u64()).collect::<Result<Vec<_>, _>>().map_err(within)?;
    let type_id = reader.u32().map_err(within)?;
    let offset = reader.u64().map_err(within)?;
    Ok(RawInfo { name, dims, type_id, offset })
}

/// Where the tensor data begins after a header that ends at `end`.
pub(crate) fn data_start(end: usize, alignment: u32) -> Bytes {
    // A header is far smaller than what could overflow here.
    Bytes::from(end).checked_align_up(Bytes::new(alignment.into())).unwrap_or(Bytes::MAX)
}
