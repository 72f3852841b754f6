//! The tensor data, mapped read-only.
// Mapping a file that others may change is `unsafe`; this module and `sigbus` make it an error, not a crash.
#![allow(unsafe_code)]

use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use memmap2::{Advice, Mmap, MmapOptions, UncheckedAdvice};
use minfer_tensor::Bytes;

use crate::error::{Error, Kind};
use crate::index::Part;
use crate::sigbus::Guard;

/// Bytes that a fault on one page may map: Linux maps a whole folio of the page cache, at most a huge page.
const FOLIO: u64 = 2 << 20;

/// One file of a model, mapped read-only.
///
/// A file that is cut or rewritten while mapped doesn't end the process: reads beyond its new end give
/// zeros, and [`Mapping::check`] is an error from then on. Whoever computes with the bytes calls it before
/// trusting the result. A file that is replaced by a rename stays as it was.
#[derive(Debug)]
pub struct Mapping {
    // Fields drop in order: the guard must forget the range before it is unmapped.
    guard: Guard,
    map: Mmap,
    file: Arc<File>,
    path: PathBuf,
    modified: Option<SystemTime>,
}

impl Mapping {
    /// Maps a part of an index.
    ///
    /// # Errors
    /// Where the system refuses, where the file changed since its header was read, and for a part that is
    /// only bytes in memory.
    pub fn open(part: &Part) -> Result<Self, Error> {
        let fail = |source| Error::new(&part.path, Kind::Io { action: "can't map the file", source });
        let Some(file) = part.file.clone() else { return Err(fail(std::io::ErrorKind::Unsupported.into())) };
        let len = part.len.to_usize().ok_or_else(|| fail(std::io::ErrorKind::FileTooLarge.into()))?;
        // SAFETY: the bytes are only read. Where another process cuts the file, `Guard` replaces the pages
        // that are gone; where it rewrites the file, values change under us, which every reader of weights
        // must withstand anyway (all bit patterns are valid) and `check` reports.
        let map = unsafe { MmapOptions::new().len(len).map(&*file) }.map_err(fail)?;
        let guard = Guard::new(&map).map_err(fail)?;
        let mapping = Self { guard, map, file, path: part.path.clone(), modified: part.modified };
        mapping.check()?;
        Ok(mapping)
    }

    /// Bytes of the file.
    #[must_use]
    pub fn len(&self) -> Bytes {
        Bytes::from(self.map.len())
    }

    /// Whether the file has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// The bytes of a range of the file, `None` where it goes beyond the end.
    #[must_use]
    pub fn bytes(&self, range: Range<u64>) -> Option<&[u8]> {
        self.map.get(to_usize(range)?)
    }

    /// Asks the system to read a range ahead. A hint: whether it helps, the system decides.
    pub fn prefetch(&self, range: Range<u64>) {
        if let Some(range) = to_usize(range).filter(|range| range.end <= self.map.len()) {
            // A refused hint changes nothing but the speed.
            let _ = self.map.advise_range(Advice::WillNeed, range.start, range.len());
        }
    }

    /// Drops a range from this process's resident memory, and what the system may have mapped along with it; it is read
    /// again on the next access.
    pub fn release(&self, range: Range<u64>) {
        let along = range.start / FOLIO * FOLIO..range.end.next_multiple_of(FOLIO).min(self.map.len() as u64);
        if let Some(range) = to_usize(along).filter(|range| range.start < range.end) {
            // SAFETY: the mapping is read-only and backed by the file, so dropped pages come back the same.
            // A refused hint leaves them where they are.
            let _ = unsafe {
                self.map.unchecked_advise_range(UncheckedAdvice::DontNeed, range.start, range.len())
            };
        }
    }

    /// Whether the file is still what was mapped. One system call: cheap enough for every token.
    ///
    /// # Errors
    /// Where it was cut or rewritten, or where a page could not be read.
    pub fn check(&self) -> Result<(), Error> {
        let changed = |how| Err(Error::new(&self.path, Kind::Changed { how }));
        let meta = self
            .file
            .metadata()
            .map_err(|source| Error::new(&self.path, Kind::Io { action: "can't check the file", source }))?;
        if meta.len() < self.map.len() as u64 {
            return changed("cut");
        }
        if self.guard.damaged() {
            return changed("unreadable");
        }
        if meta.len() != self.map.len() as u64 || meta.modified().ok() != self.modified {
            return changed("rewritten");
        }
        Ok(())
    }
}

fn to_usize(range: Range<u64>) -> Option<Range<usize>> {
    Some(usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?)
}
