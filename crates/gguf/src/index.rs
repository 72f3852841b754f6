//! The index of a model: everything but the tensor data.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use minfer_tensor::Bytes;

use crate::error::{Error, Kind, TensorProblem};
use crate::metadata::Metadata;
use crate::parse;
use crate::reader::Reader;
use crate::split;
use crate::tensor::{GgufTensorInfo, RawInfo};

/// The validated head of a model: metadata, tensor names, types and places. Holds no tensor data.
#[derive(Debug)]
pub struct Index {
    metadata: Metadata,
    tensors: Vec<GgufTensorInfo>,
    /// Indices of `tensors`, sorted by name.
    by_name: Vec<usize>,
    parts: Vec<Part>,
    missing: Bytes,
}

/// Whether the tensor data that a header speaks of must be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Data {
    Required,
    Optional,
}

/// A file of a model, kept open so that the data is that of the file whose header was read.
#[derive(Clone, Debug)]
pub struct Part {
    /// The file; empty for bytes in memory.
    pub path: PathBuf,
    /// Bytes in the file.
    pub len: Bytes,
    /// Where the tensor data begins, from the start of the file.
    pub data_start: Bytes,
    /// The alignment of tensor data, in bytes.
    pub alignment: u32,
    pub(crate) file: Option<Arc<File>>,
    pub(crate) modified: Option<SystemTime>,
}

impl Index {
    /// Reads the header of a file, and of the other parts where the model is split.
    ///
    /// # Errors
    /// Where a file can't be read, or anything in it isn't as it should be.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::open_parts(path.as_ref(), Data::Required)
    }

    /// As [`open`](Self::open), but a file may end before its tensor data does: what a model will need can be told of a
    /// download that isn't finished. [`missing_bytes`](Self::missing_bytes) says how much isn't there.
    ///
    /// # Errors
    /// As [`open`](Self::open), a header that isn't complete included.
    pub fn open_header(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::open_parts(path.as_ref(), Data::Optional)
    }

    fn open_parts(path: &Path, data: Data) -> Result<Self, Error> {
        let (metadata, part, infos) = read_part(path)?;
        let fail = |kind| Error::new(path, kind);
        let n_parts = split::part_count(path, &metadata)?;
        let mut tensors = check_infos(infos, &part, 0, data).map_err(fail)?;
        let mut parts = vec![part];
        for index in 1..n_parts {
            let path = split::part_path(path, index, n_parts).map_err(fail)?;
            let (metadata, part, infos) = read_part(&path)?;
            split::check_part(&metadata, index, n_parts)?;
            let checked = check_infos(infos, &part, index, data);
            tensors.extend(checked.map_err(|kind| Error::new(&path, kind))?);
            parts.push(part);
        }
        split::check_tensor_count(&metadata, tensors.len())?;
        Self::new(metadata, tensors, parts).map_err(fail)
    }

    /// The index of a whole file in memory. Its part has no path and can't be mapped.
    ///
    /// # Errors
    /// Where anything in it isn't as it should be. A part of a split model is taken for itself.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, Error> {
        let path = Path::new("");
        let fail = |kind| Error::new(path, kind);
        let (metadata, part, infos) = parse_part(path, Reader::from_bytes(bytes))?;
        let tensors = check_infos(infos, &part, 0, Data::Required).map_err(fail)?;
        Self::new(metadata, tensors, vec![part]).map_err(fail)
    }

    fn new(metadata: Metadata, tensors: Vec<GgufTensorInfo>, parts: Vec<Part>) -> Result<Self, Kind> {
        let mut by_name: Vec<usize> = (0..tensors.len()).collect();
        by_name.sort_by(|&a, &b| tensors[a].name.cmp(&tensors[b].name));
        for pair in by_name.windows(2) {
            if tensors[pair[0]].name == tensors[pair[1]].name {
                let name = tensors[pair[0]].name.clone();
                return Err(Kind::Tensor { name, problem: TensorProblem::Duplicate });
            }
        }
        let missing = missing_bytes(&tensors, &parts);
        Ok(Self { metadata, tensors, by_name, parts, missing })
    }

    /// The metadata; of a split model, that of its first part.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The tensors in the order of their infos.
    #[must_use]
    pub fn tensors(&self) -> &[GgufTensorInfo] {
        &self.tensors
    }

    /// The tensor with this name.
    #[must_use]
    pub fn tensor(&self, name: &str) -> Option<&GgufTensorInfo> {
        let found = self.by_name.binary_search_by(|&i| self.tensors[i].name.as_str().cmp(name)).ok()?;
        Some(&self.tensors[self.by_name[found]])
    }

    /// The files of the model, in order.
    #[must_use]
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Bytes by which files end before their last tensor; 0 unless the index was opened by
    /// [`open_header`](Self::open_header). Saturates.
    #[must_use]
    pub const fn missing_bytes(&self) -> Bytes {
        self.missing
    }

    /// Heap that the index holds.
    #[must_use]
    pub fn header_bytes(&self) -> Bytes {
        let names: usize = self.tensors.iter().map(|tensor| tensor.name.capacity()).sum();
        let infos = self.tensors.capacity() * size_of::<GgufTensorInfo>();
        let order = self.by_name.capacity() * size_of::<usize>();
        Bytes::from(self.metadata.heap_bytes() + names + infos + order)
    }
}

/// What one file contributes.
type ParsedPart = (Metadata, Part, Vec<RawInfo>);

fn read_part(path: &Path) -> Result<ParsedPart, Error> {
    let fail = |kind| Error::new(path, kind);
    let io = |action| move |source| Error::new(path, Kind::Io { action, source });
    // Asked before opening: to open a pipe would wait for its other end.
    let meta = fs::metadata(path).map_err(io("can't open the file"))?;
    if meta.is_dir() {
        return Err(fail(Kind::NotAFile { found: "a directory" }));
    }
    if !meta.is_file() {
        return Err(fail(Kind::NotAFile { found: "a device or a pipe" }));
    }
    let file = File::open(path).map_err(io("can't open the file"))?;
    let meta = file.metadata().map_err(io("can't read the file's length"))?;
    let (metadata, mut part, infos) = parse_part(path, Reader::new(&file, meta.len()))?;
    part.modified = meta.modified().ok();
    part.file = Some(Arc::new(file));
    Ok((metadata, part, infos))
}

fn parse_part(path: &Path, mut reader: Reader<'_>) -> Result<ParsedPart, Error> {
    let fail = |kind| Error::new(path, kind);
    let header = parse::header(&mut reader).map_err(fail)?;
    let len = Bytes::new(reader.file_len());
    let end = reader.pos();
    let metadata = Metadata::new(path, reader.into_buf(), header.entries).map_err(fail)?;
    let alignment = metadata.alignment()?;
    let data_start = parse::data_start(end, alignment);
    let part = Part { path: path.to_path_buf(), len, data_start, alignment, file: None, modified: None };
    Ok((metadata, part, header.infos))
}

/// By how much the parts are too short for their tensors.
fn missing_bytes(tensors: &[GgufTensorInfo], parts: &[Part]) -> Bytes {
    let mut ends = vec![0; parts.len()];
    for tensor in tensors {
        ends[tensor.part] = tensor.range().end.max(ends[tensor.part]);
    }
    ends.iter().zip(parts).map(|(&end, part)| Bytes::new(end).saturating_sub(part.len)).sum()
}

/// Checks the tensors of one part: each alone, then that no byte belongs to two.
fn check_infos(
    infos: Vec<RawInfo>,
    part: &Part,
    index: usize,
    data: Data,
) -> Result<Vec<GgufTensorInfo>, Kind> {
    let check = |info: RawInfo| info.check(part, index, data);
    let tensors = infos.into_iter().map(check).collect::<Result<Vec<_>, _>>()?;
    let mut by_offset: Vec<&GgufTensorInfo> = tensors.iter().collect();
    by_offset.sort_by_key(|tensor| tensor.offset);
    for pair in by_offset.windows(2) {
        if pair[0].range().end > pair[1].offset {
            let problem = TensorProblem::Overlap { other: pair[0].name.clone() };
            return Err(Kind::Tensor { name: pair[1].name.clone(), problem });
        }
    }
    Ok(tensors)
}
