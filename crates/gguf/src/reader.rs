//! Reading the head of a file piece by piece, never more than exists.

use std::fs::File;
use std::io::{self, Read};

use minfer_tensor::Bytes;

use crate::error::Kind;

/// The most that is read before the tensor data: ten times the largest vocabulary.
const MAX_HEADER: u64 = 256 << 20;
/// The least and the most that a read asks for beyond what is needed: little of the tensor data for a small
/// header, few system calls for a large one.
const CHUNK: (usize, usize) = (64 << 10, 1 << 20);

/// The bytes of a file's head as far as they were asked for.
#[derive(Debug)]
pub(crate) struct Reader<'f> {
    file: Option<&'f File>,
    file_len: u64,
    buf: Vec<u8>,
    pos: usize,
}

/// Why bytes aren't there.
#[derive(Debug)]
pub(crate) enum ReadError {
    Short { offset: u64, need: u64, left: u64 },
    TooLarge,
    Io(io::Error),
}

impl ReadError {
    /// The error of reading `what`.
    pub(crate) fn within(self, what: impl FnOnce() -> String) -> Kind {
        match self {
            Self::Short { offset, need, left } => {
                Kind::Truncated { what: what(), offset, need: Bytes::new(need), left: Bytes::new(left) }
            }
            Self::TooLarge => Kind::HeaderTooLarge { limit: Bytes::new(MAX_HEADER) },
            Self::Io(source) => Kind::Io { action: "can't read the file", source },
        }
    }
}

impl<'f> Reader<'f> {
    /// Reads from `file`, which has `file_len` bytes and stands at its start.
    pub(crate) fn new(file: &'f File, file_len: u64) -> Self {
        Self { file: Some(file), file_len, buf: Vec::new(), pos: 0 }
    }

    /// Reads from memory.
    pub(crate) fn from_bytes(buf: Vec<u8>) -> Self {
        Self { file: None, file_len: buf.len() as u64, buf, pos: 0 }
    }

    /// Where the next byte is.
    pub(crate) fn pos(&self) -> usize {
        self.pos
    }

    /// Bytes in the file.
    pub(crate) fn file_len(&self) -> u64 {
        self.file_len
    }

    /// Bytes after the next one's place.
    pub(crate) fn left(&self) -> u64 {
        self.file_len.saturating_sub(self.pos as u64)
    }

    /// Everything that was read so far, without what lies beyond.
    pub(crate) fn into_buf(mut self) -> Vec<u8> {
        self.buf.truncate(self.pos);
        self.buf.shrink_to_fit();
        self.buf
    }

    /// The next `n` bytes.
    pub(crate) fn take(&mut self, n: u64) -> Result<&[u8], ReadError> {
        let start = self.pos;
        let short = ReadError::Short { offset: start as u64, need: n, left: self.left() };
        let Some(end) = (start as u64).checked_add(n).filter(|&end| end <= self.file_len) else {
            return Err(short);
        };
        if end > MAX_HEADER {
            return Err(ReadError::TooLarge);
        }
        // Below `MAX_HEADER`, so it fits.
        let end = end as usize;
        self.fill(end).map_err(ReadError::Io)?;
        if self.buf.len() < end {
            return Err(short);
        }
        self.pos = end;
        Ok(&self.buf[start..end])
    }

    /// The next `N` bytes.
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], ReadError> {
        let bytes = self.take(N as u64)?;
        Ok(std::array::from_fn(|i| bytes[i]))
    }

    /// The next `u32`.
    pub(crate) fn u32(&mut self) -> Result<u32, ReadError> {
        self.array().map(u32::from_le_bytes)
    }

    /// The next `u64`.
    pub(crate) fn u64(&mut self) -> Result<u64, ReadError> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads until the buffer has `end` bytes or the file has no more.
    fn fill(&mut self, end: usize) -> io::Result<()> {
        let Some(file) = self.file.filter(|_| self.buf.len() < end) else { return Ok(()) };
        let missing = (end - self.buf.len()).max(self.buf.len().clamp(CHUNK.0, CHUNK.1));
        file.take(missing as u64).read_to_end(&mut self.buf)?;
        Ok(())
    }
}
