//! The cache on disk.
//!
//! One folder a model ([`Shelf`]): its files, beside each a record of its digest and size, and a lock. A file
//! under its final name was complete and verified when it got there; the record tells on later starts,
//! without reading the file again, that it still has the size it had then.

use crate::error::FetchError;
use crate::{Digest, Progress};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The folder of one model.
pub(crate) struct Shelf {
    dir: PathBuf,
}

impl Shelf {
    pub(crate) fn new(dir: PathBuf) -> Shelf {
        Shelf { dir }
    }

    /// The file of this name, which may have `/` in it.
    pub(crate) fn entry(&self, name: &str) -> Entry {
        Entry { path: name.split('/').fold(self.dir.clone(), |path, part| path.join(part)) }
    }

    /// Creates the folder and waits until no other process fetches into it.
    ///
    /// The lock ends when the returned file is dropped, or the process ends. A file system without locks
    /// gives none: the digest still guards what is loaded.
    pub(crate) fn lock(&self, progress: &mut dyn Progress) -> Result<File, FetchError> {
        fs::create_dir_all(&self.dir).map_err(FetchError::local("create", &self.dir))?;
        let path = self.dir.join(".lock");
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .map_err(FetchError::local("write", &path))?;
        let taken = match file.try_lock() {
            Err(TryLockError::WouldBlock) => {
                progress.note(&format!(
                    "another process is fetching into {}: waiting for it",
                    self.dir.display()
                ));
                file.lock()
            }
            Err(TryLockError::Error(error)) => Err(error),
            Ok(()) => Ok(()),
        };
        match taken {
            Err(error) if error.kind() != io::ErrorKind::Unsupported => {
                Err(FetchError::local("lock", &path)(error))
            }
            _ => Ok(file),
        }
    }

    /// The name that [`Shelf::choose`] remembered.
    pub(crate) fn chosen(&self) -> Option<String> {
        fs::read_to_string(self.dir.join(".chosen"))
            .ok()
            .filter(|name| crate::reference::check_file(name).is_ok())
    }

    /// Remembers which file a reference without a file name stands for.
    pub(crate) fn choose(&self, name: &str) -> Result<(), FetchError> {
        write_whole(&self.dir.join(".chosen"), name)
    }

    /// A folder for intermediate files that is emptied now and removed when the guard is dropped.
    pub(crate) fn scratch(&self) -> Result<Scratch, FetchError> {
        let scratch = Scratch(self.dir.join(".scratch"));
        scratch.remove();
        fs::create_dir_all(&scratch.0).map_err(FetchError::local("create", &scratch.0))?;
        Ok(scratch)
    }
}

/// A folder that is removed when this is dropped.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// What can't be removed now is removed by the next [`Shelf::scratch`].
    fn remove(&self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.remove();
    }
}

/// One file of the cache, there or not.
pub(crate) struct Entry {
    path: PathBuf,
}

impl Entry {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Where the content grows until it is complete.
    pub(crate) fn part(&self) -> PathBuf {
        self.beside("part")
    }

    /// The path as text, for progress and errors.
    pub(crate) fn name(&self) -> String {
        self.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// Whether the file is there, as long as it was when it was verified, and of the `pinned` content.
    ///
    /// Doesn't read the file. One that was cut or replaced since is noted as damaged.
    pub(crate) fn is_complete(&self, pinned: Option<Digest>, progress: &mut dyn Progress) -> bool {
        let Ok(found) = fs::metadata(&self.path) else { return false };
        let Some((digest, bytes)) = self.record() else { return false };
        if found.len() == bytes && pinned.is_none_or(|pinned| pinned == digest) {
            return true;
        }
        progress.note(&format!(
            "{} is damaged ({} bytes of {bytes}): fetching it again",
            self.path.display(),
            found.len()
        ));
        false
    }

    /// Creates the folder of the file; for a file that is there but isn't complete, removes it.
    pub(crate) fn prepare(&self) -> Result<(), FetchError> {
        if let Some(dir) = self.path.parent() {
            fs::create_dir_all(dir).map_err(FetchError::local("create", dir))?;
        }
        remove_if_there(&self.path)
    }

    /// Gives the complete, verified and closed part file its final name.
    ///
    /// The record goes first: a file under its final name always has one.
    pub(crate) fn commit(&self, digest: Digest, bytes: u64) -> Result<(), FetchError> {
        write_whole(&self.beside("sha256"), &format!("{digest} {bytes}\n"))?;
        fs::rename(self.part(), &self.path).map_err(FetchError::local("write", &self.path))?;
        sync_folder(&self.path);
        Ok(())
    }

    /// Removes the part file, if there is one.
    pub(crate) fn discard_part(&self) -> Result<(), FetchError> {
        remove_if_there(&self.part())
    }

    fn record(&self) -> Option<(Digest, u64)> {
        let text = fs::read_to_string(self.beside("sha256")).ok()?;
        let (digest, bytes) = text.trim_end().split_once(' ')?;
        Some((Digest::parse(digest)?, bytes.parse().ok()?))
    }

    fn beside(&self, extension: &str) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(".");
        name.push(extension);
        name.into()
    }
}

/// Writes a small file so that it is there whole or not at all.
fn write_whole(path: &Path, text: &str) -> Result<(), FetchError> {
    let draft = path.with_extension("draft");
    let write = || {
        let mut file = File::create(&draft)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&draft, path)
    };
    write().map_err(FetchError::local("write", path))
}

fn remove_if_there(path: &Path) -> Result<(), FetchError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(FetchError::local("remove", path)(error))
        }
        _ => Ok(()),
    }
}

/// Makes a rename survive a power cut, where the system can sync a folder; elsewhere the next start repairs.
fn sync_folder(path: &Path) {
    if let Some(Ok(dir)) = path.parent().map(File::open) {
        let _ = dir.sync_all();
    }
}
