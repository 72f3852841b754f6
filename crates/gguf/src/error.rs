//! What can be wrong with a file.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use minfer_tensor::{Bytes, DType, MAX_DIMS, ShapeError};

use crate::text::quote;

/// Why a file was refused: one line that names the file, the place and what to do.
#[derive(Debug)]
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    kind: Kind,
}

impl Error {
    pub(crate) fn new(path: &Path, kind: Kind) -> Self {
        Self(Box::new(Inner { path: path.to_path_buf(), kind }))
    }

    /// The file; empty for bytes in memory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// What is wrong with it.
    #[must_use]
    pub fn kind(&self) -> &Kind {
        &self.0.kind
    }

    /// Whether the file ends too early, or counts more than it has: a download that was cut, as a rule.
    #[must_use]
    pub fn is_truncated(&self) -> bool {
        match &self.0.kind {
            Kind::Empty | Kind::Truncated { .. } | Kind::Count { .. } => true,
            Kind::Tensor { problem, .. } => matches!(problem, TensorProblem::PastEnd { .. }),
            _ => false,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.0.path.as_os_str().is_empty() {
            // Debug would quote; the lossy text is escaped like any other from outside.
            write!(f, "{}: ", self.0.path.to_string_lossy().escape_debug())?;
        }
        self.0.kind.fmt(f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // The message of an I/O error is part of our own line already.
        None
    }
}

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Kind {
    /// The system refused an operation.
    #[error("{action}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// A directory, a device, a pipe.
    #[error("{found}, not a regular file")]
    NotAFile {
        /// What it is.
        found: &'static str,
    },
    /// No bytes at all.
    #[error("the file is empty (0 bytes): the download may be incomplete")]
    Empty,
    /// A pointer of Git LFS in place of the file.
    #[error("a Git LFS pointer, not a GGUF file: fetch the file itself with `git lfs pull`")]
    LfsPointer,
    /// Another format.
    #[error("not a GGUF file: the magic is {}{}", quote(&magic.escape_ascii().to_string()), older_format(*magic))]
    Magic {
        /// The first four bytes.
        magic: [u8; 4],
    },
    /// A file for machines of the other byte order.
    #[error("a big-endian GGUF file; only little-endian ones are supported: convert it again")]
    BigEndian,
    /// A version that is too old, or doesn't exist yet.
    #[error("GGUF version {found} is not supported, expected 2 or 3: convert the model again")]
    Version {
        /// The version in the file.
        found: u32,
    },
    /// More metadata than any model has.
    #[error("metadata and tensor infos take more than {limit}: the file is damaged")]
    HeaderTooLarge {
        /// The largest header that is read.
        limit: Bytes,
    },
    /// The file ends too early.
    #[error(
        "the file ends within {what}: {} more bytes expected at offset {offset}, {} remain; the download may be incomplete",
        need.get(), left.get()
    )]
    Truncated {
        /// The part of the file, in words.
        what: String,
        /// Where the missing bytes begin.
        offset: u64,
        /// Bytes that should be there.
        need: Bytes,
        /// Bytes that are.
        left: Bytes,
    },
    /// A count that the file has no room for.
    #[error(
        "the {what} count is {found}, expected {possible} at most in a file of this length: it is cut or damaged"
    )]
    Count {
        /// What is counted.
        what: &'static str,
        /// The count.
        found: u64,
        /// How many fit the bytes that exist, or are read at most.
        possible: u64,
    },
    /// A key or a name of no characters, of too many, or not UTF-8.
    #[error("{what}: {problem}")]
    Name {
        /// Which key or name.
        what: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A key that occurs twice.
    #[error("the metadata key {} occurs twice", quote(key))]
    DuplicateKey {
        /// The key.
        key: String,
    },
    /// A type of value that isn't known.
    #[error("the metadata key {} has values of unknown type {id}", quote(key))]
    ValueType {
        /// The key.
        key: String,
        /// The type's number.
        id: u32,
    },
    /// Arrays of arrays of arrays.
    #[error("the metadata key {} has arrays nested more than {limit} deep", quote(key))]
    Nesting {
        /// The key.
        key: String,
        /// The deepest nesting that is read.
        limit: u32,
    },
    /// A key that must be there and isn't.
    #[error("the metadata key {} is missing", quote(key))]
    Missing {
        /// The key.
        key: String,
    },
    /// A value that isn't what its key stands for.
    #[error("the metadata key {}: expected {expected}, found {found}", quote(key))]
    Value {
        /// The key.
        key: String,
        /// What its value should be.
        expected: String,
        /// What it is.
        found: String,
    },
    /// A tensor that can't be.
    #[error("tensor {}: {problem}", quote(name))]
    Tensor {
        /// The tensor.
        name: String,
        /// What is wrong with it.
        problem: TensorProblem,
    },
    /// A part of a split model that isn't what it should be.
    #[error("split model: {0}")]
    Split(String),
    /// The file was changed while in use.
    #[error("the file was {how} while in use: load the model again")]
    Changed {
        /// What happened to it.
        how: &'static str,
    },
}

/// What is wrong with a tensor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TensorProblem {
    /// Not one to four dimensions.
    #[error("{found} dimensions, expected 1 to {MAX_DIMS}")]
    Dims {
        /// The number in the file.
        found: u32,
    },
    /// Dimensions that no tensor can have.
    #[error("impossible shape {}: {problem}", dims_text(dims))]
    Shape {
        /// The dimensions in the file.
        dims: Vec<u64>,
        /// Why they are no shape.
        problem: ShapeError,
    },
    /// A type number that isn't known.
    #[error("unknown type {id}")]
    UnknownType {
        /// The number.
        id: u32,
    },
    /// A type that exists and isn't implemented, or does no longer exist.
    #[error("type {type_name} ({id}) {}; supported: {}", unsupported(*id), supported())]
    UnsupportedType {
        /// GGML's name of it.
        type_name: &'static str,
        /// GGML's number of it.
        id: u32,
    },
    /// A type that can't be multiplied with.
    #[error("type {dtype} is not a type of weights; supported: {}", supported())]
    NotWeights {
        /// The type.
        dtype: DType,
    },
    /// Rows that end within a block.
    #[error("rows of {row_len} elements are no whole number of {dtype} blocks of {}", dtype.block_len())]
    PartialBlocks {
        /// The type.
        dtype: DType,
        /// Elements in a row.
        row_len: usize,
    },
    /// An offset that isn't a multiple of the alignment.
    #[error("offset {offset} is not a multiple of the alignment {alignment}")]
    Misaligned {
        /// From the start of the data.
        offset: u64,
        /// The file's alignment.
        alignment: u32,
    },
    /// Data beyond the end of the file.
    #[error(
        "its data ends at {}, past the end of the file at {}: the download may be incomplete",
        end_text(*end), file_len.get()
    )]
    PastEnd {
        /// Where the data should end, `None` where no `u64` can say.
        end: Option<u64>,
        /// Bytes in the file.
        file_len: Bytes,
    },
    /// Data that belongs to two tensors.
    #[error("its data overlaps that of tensor {}", quote(other))]
    Overlap {
        /// The other tensor.
        other: String,
    },
    /// A name that occurs twice.
    #[error("the name occurs twice")]
    Duplicate,
}

fn older_format(magic: [u8; 4]) -> &'static str {
    // The older formats wrote their magic as a little-endian number, so the letters are reversed.
    match &magic {
        b"lmgg" => " (ggml, a format of 2023): convert the model again",
        b"fmgg" => " (ggmf, a format of 2023): convert the model again",
        b"tjgg" => " (ggjt, a format of 2023): convert the model again",
        b"algg" => " (ggla, an adapter of 2023): convert it again",
        _ => "",
    }
}

fn unsupported(id: u32) -> &'static str {
    if minfer_tensor::ggml_type_removed(id) { "was removed from GGML" } else { "is not supported" }
}

fn supported() -> String {
    let weights = DType::ALL.into_iter().filter(|&dtype| dtype != DType::I32);
    weights.map(DType::name).collect::<Vec<_>>().join(", ")
}

fn dims_text(dims: &[u64]) -> String {
    dims.iter().map(u64::to_string).collect::<Vec<_>>().join(" x ")
}

fn end_text(end: Option<u64>) -> String {
    end.map_or_else(|| "an offset beyond 64 bits".to_owned(), |end| format!("byte {end}"))
}
