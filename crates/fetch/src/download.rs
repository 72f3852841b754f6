//! One file over HTTP into the cache: resumed, checked, committed.

use crate::cache::Entry;
use crate::digest::Hasher;
use crate::error::{FetchError, escape};
use crate::http::{Http, Reply, status_error};
use crate::{Digest, Progress};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::time::Duration;

/// Attempts in a row that bring nothing new before a download is given up.
const MAX_FRUITLESS: u32 = 3;

/// A download of one file.
pub(crate) struct Download<'a> {
    pub(crate) http: &'a Http,
    pub(crate) url: &'a str,
    pub(crate) entry: &'a Entry,
    /// The digest that the content must have, where the caller knows it.
    pub(crate) pinned: Option<Digest>,
    /// The pause before a retry, times the attempts in a row that brought nothing new.
    pub(crate) pause: Duration,
}

/// How an attempt that didn't complete the file ended.
enum Fault {
    /// Trying again is worth it.
    Passing(FetchError),
    /// Nothing answers. At the first attempt, another source is a better idea than another try.
    Unreachable(FetchError),
    /// The part file was of no use and is gone: start over, at once.
    Stale,
    /// Nothing will change.
    Lasting(FetchError),
}

impl From<FetchError> for Fault {
    fn from(error: FetchError) -> Fault {
        Fault::Lasting(error)
    }
}

impl Download<'_> {
    /// Fetches the file, again and again while that gets further.
    ///
    /// What arrived is kept for the next start if its digest is known, since only a digest can tell whether
    /// the rest belongs to it.
    pub(crate) fn run(&self, progress: &mut dyn Progress) -> Result<(), FetchError> {
        let (mut answered, mut fruitless, mut furthest) = (false, 0, 0);
        loop {
            let error = match self.attempt(progress) {
                Ok(()) => return Ok(()),
                Err(Fault::Lasting(error)) => return Err(error),
                Err(Fault::Unreachable(error)) if !answered => return Err(error),
                Err(Fault::Stale) => {
                    answered = true;
                    continue;
                }
                Err(Fault::Passing(error) | Fault::Unreachable(error)) => error,
            };
            answered = true;
            let reached = self.part_length();
            fruitless = if reached > furthest { 1 } else { fruitless + 1 };
            furthest = furthest.max(reached);
            if fruitless >= MAX_FRUITLESS {
                return Err(error);
            }
            progress.note(&format!("{error}: trying again"));
            std::thread::sleep(self.pause * fruitless);
        }
    }

    fn attempt(&self, progress: &mut dyn Progress) -> Result<(), Fault> {
        let from = self.part_length();
        let reply = self.http.get(self.url, from).map_err(Fault::Unreachable)?;
        let expected = self.pinned.or(reply.digest);
        let resumable = from > 0 && expected.is_some();
        match reply.status {
            200 => self.receive(reply, 0, expected, progress),
            206 if resumable && reply.range_start == Some(from) => {
                self.receive(reply, from, expected, progress)
            }
            416 if resumable => self.settle(self.hash_part()?, from, expected),
            206 | 416 if from > 0 => self.start_over(),
            429 | 500..=599 => Err(Fault::Passing(status_error(self.url, reply.status))),
            status => Err(status_error(self.url, status).into()),
        }
    }

    /// Appends the body to the first `from` bytes of the part file.
    fn receive(
        &self,
        reply: Reply,
        from: u64,
        expected: Option<Digest>,
        progress: &mut dyn Progress,
    ) -> Result<(), Fault> {
        let total = reply.length.and_then(|length| length.checked_add(from));
        let mut hasher = if from > 0 { self.hash_part()? } else { Hasher::default() };
        progress.begin(&self.entry.name(), total);
        let copied = self.copy(&mut reply.into_reader(), &mut hasher, progress);
        progress.end();
        if copied.is_err() && expected.is_none() {
            self.entry.discard_part()?;
        }
        copied?;
        if let Some(total) = total.filter(|&total| total != hasher.bytes()) {
            return Err(
                self.broken(&format!("the connection ended after {} bytes of {total}", hasher.bytes()))
            );
        }
        self.settle(hasher, from, expected)
    }

    /// Moves the body to disk. Its first byte comes after those that `hasher` has seen.
    fn copy(
        &self,
        body: &mut impl Read,
        hasher: &mut Hasher,
        progress: &mut dyn Progress,
    ) -> Result<(), Fault> {
        let path = self.entry.part();
        let mut options = OpenOptions::new();
        match hasher.bytes() {
            0 => options.create(true).write(true).truncate(true),
            _ => options.append(true),
        };
        let mut file = options.open(&path).map_err(FetchError::local("write", &path))?;
        let mut buffer = vec![0; 128 << 10];
        loop {
            let n = match body.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => n,
                Err(error) => return Err(self.broken(&error.to_string())),
            };
            file.write_all(&buffer[..n]).map_err(FetchError::local("write", &path))?;
            hasher.update(&buffer[..n]);
            progress.advance(hasher.bytes());
        }
        Ok(file.sync_all().map_err(FetchError::local("write", &path))?)
    }

    /// Commits the part file if its digest is right. A wrong one that was put together from several answers
    /// gets one more chance, from the start.
    fn settle(&self, hasher: Hasher, resumed_at: u64, expected: Option<Digest>) -> Result<(), Fault> {
        let bytes = hasher.bytes();
        let found = hasher.finish();
        match expected {
            Some(expected) if expected != found && resumed_at > 0 => self.start_over(),
            Some(expected) if expected != found => {
                self.entry.discard_part()?;
                Err(FetchError::Digest { what: escape(self.url), expected, found }.into())
            }
            _ => Ok(self.entry.commit(found, bytes)?),
        }
    }

    fn start_over(&self) -> Result<(), Fault> {
        self.entry.discard_part()?;
        Err(Fault::Stale)
    }

    fn hash_part(&self) -> Result<Hasher, FetchError> {
        let path = self.entry.part();
        let mut hasher = Hasher::default();
        File::open(&path)
            .and_then(|mut file| hasher.update_from(&mut file))
            .map_err(FetchError::local("read", &path))?;
        Ok(hasher)
    }

    fn part_length(&self) -> u64 {
        fs::metadata(self.entry.part()).map_or(0, |part| part.len())
    }

    fn broken(&self, reason: &str) -> Fault {
        Fault::Passing(FetchError::Transfer { url: escape(self.url), reason: escape(reason) })
    }
}
