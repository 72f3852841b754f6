//! What a user may write where a model is expected.

use crate::error::{FetchError, escape};
use crate::{ALIASES, Alias};
use std::path::{Path, PathBuf};

/// A parsed `MODEL` argument.
#[derive(Debug)]
pub enum Reference {
    /// A file on this machine.
    Path(PathBuf),
    /// `hf:owner/repo[:file]`.
    Hub(HubReference),
    /// `pip:package==version`.
    Pip {
        /// The name of the package.
        package: String,
        /// Its exact version.
        version: String,
    },
    /// One of [`ALIASES`].
    Alias(&'static Alias),
}

/// `hf:owner/repo[:file]`, every part of it safe to be used as a file name.
#[derive(Debug, PartialEq, Eq)]
pub struct HubReference {
    /// The account on the hub.
    pub owner: String,
    /// The repository.
    pub repo: String,
    /// The file's path in the repository; `None` means its only GGUF file.
    pub file: Option<String>,
}

impl Reference {
    /// Parses what was typed. An alias wins over a file of the same name: write `./name` for the file.
    ///
    /// # Errors
    /// [`FetchError::Reference`] if a `hf:` or `pip:` reference is malformed or unsafe as a path,
    /// [`FetchError::UnknownAlias`] for `name:tag` that is neither an alias nor an existing file.
    pub fn parse(text: &str) -> Result<Reference, FetchError> {
        let refuse = |why: String| FetchError::Reference { text: text.into(), why };
        if let Some(rest) = text.strip_prefix("hf:") {
            return HubReference::parse(rest).map(Reference::Hub).map_err(refuse);
        }
        if let Some(rest) = text.strip_prefix("pip:") {
            return parse_pip(rest).map_err(refuse);
        }
        if let Some(alias) = Alias::find(text) {
            return Ok(Reference::Alias(alias));
        }
        if looks_like_alias(text) && !Path::new(text).exists() {
            let known = ALIASES.iter().map(|alias| alias.name).collect::<Vec<_>>().join(", ");
            return Err(FetchError::UnknownAlias { text: text.into(), known });
        }
        Ok(Reference::Path(text.into()))
    }
}

impl HubReference {
    fn parse(text: &str) -> Result<HubReference, String> {
        let (name, file) = match text.split_once(':') {
            Some((name, file)) => (name, Some(file)),
            None => (text, None),
        };
        let (owner, repo) = name.split_once('/').ok_or("expected hf:owner/repo or hf:owner/repo:file")?;
        check_component(owner)?;
        check_component(repo)?;
        file.map_or(Ok(()), check_file)?;
        Ok(HubReference { owner: owner.into(), repo: repo.into(), file: file.map(Into::into) })
    }

    /// `owner/repo`.
    pub fn name(&self) -> String {
        format!("{}/{}", self.owner, self.repo)
    }
}

/// Whether `path`, with `/` between its components, is a GGUF file that may be created below a folder.
pub(crate) fn check_file(path: &str) -> Result<(), String> {
    path.split('/').try_for_each(check_component)?;
    match path.to_ascii_lowercase().ends_with(".gguf") {
        true => Ok(()),
        false => Err(format!("{:?} doesn't end in .gguf", escape(path))),
    }
}

/// One name that means the same file on every system: no separator, no drive, nothing hidden, no way up.
fn check_component(name: &str) -> Result<(), String> {
    let reserved = |c: char| c.is_control() || "/\\:*?\"<>|".contains(c);
    if name.is_empty() {
        Err("a name in it is empty".into())
    } else if name.len() > 200 {
        Err("a name in it is longer than 200 bytes".into())
    } else if name.starts_with('.') || name.ends_with(['.', ' ']) || name.contains(reserved) {
        Err(format!("{:?} can't be the name of a file", escape(name)))
    } else {
        Ok(())
    }
}

fn parse_pip(text: &str) -> Result<Reference, String> {
    let (package, version) = text.split_once("==").ok_or("expected pip:package==version")?;
    let plain = |name: &str, extra: &str| {
        name.starts_with(|c: char| c.is_ascii_alphanumeric())
            && name.len() <= 100
            && name.chars().all(|c| c.is_ascii_alphanumeric() || extra.contains(c))
    };
    if !plain(package, "._-") {
        return Err(format!("{:?} can't be the name of a package", escape(package)));
    }
    if !plain(version, "._-+!") {
        return Err(format!("{:?} can't be a version", escape(version)));
    }
    Ok(Reference::Pip { package: package.into(), version: version.into() })
}

/// `name:tag`: no folder, no extension of a model file, and no drive letter.
fn looks_like_alias(text: &str) -> bool {
    let named = text.split_once(':').is_some_and(|(name, tag)| name.len() > 1 && !tag.is_empty());
    named && !text.contains(['/', '\\']) && !text.to_ascii_lowercase().ends_with(".gguf")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hub(text: &str) -> HubReference {
        match Reference::parse(text).unwrap() {
            Reference::Hub(reference) => reference,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_form_parses() {
        assert_eq!(hub("hf:o/r"), HubReference { owner: "o".into(), repo: "r".into(), file: None });
        assert_eq!(hub("hf:o/r-1.5:q/m x.gguf").file.as_deref(), Some("q/m x.gguf"));
        assert_eq!(hub("hf:o/r").name(), "o/r");
        let Reference::Pip { package, version } = Reference::parse("pip:a-b.c==1!2.0+l").unwrap() else {
            panic!()
        };
        assert_eq!((package.as_str(), version.as_str()), ("a-b.c", "1!2.0+l"));
        assert!(matches!(Reference::parse("smollm2:135m").unwrap(), Reference::Alias(_)));
        for path in ["m.gguf", "./smollm2:135m", "C:\\models\\m", "C:m.gguf", "a:b.gguf", "folder/x:y", "m"] {
            assert!(
                matches!(Reference::parse(path).unwrap(), Reference::Path(p) if p == Path::new(path)),
                "{path}"
            );
        }
    }

    #[test]
    fn a_name_can_not_leave_the_cache() {
        for text in [
            "hf:",
            "hf:o",
            "hf:o/",
            "hf:/r",
            "hf:../r",
            "hf:o/..",
            "hf:o/r/s",
            "hf:o/r:",
            "hf:o/r:../m.gguf",
            "hf:o/r:/m.gguf",
            "hf:o/r:a//m.gguf",
            "hf:o/r:a\\..\\m.gguf",
            "hf:o/r:.m.gguf",
            "hf:o/r:c:m.gguf",
            "hf:o/r:m.txt",
            "hf:o/r:m\u{1b}.gguf",
            "pip:",
            "pip:x",
            "pip:x==",
            "pip:==1",
            "pip:--index==1",
            "pip:x==-1",
            "pip:x y==1",
            "pip:../x==1",
            "pip:x==1/2",
        ] {
            assert!(matches!(Reference::parse(text), Err(FetchError::Reference { .. })), "{text}");
        }
    }

    #[test]
    fn an_unknown_alias_names_the_known_ones() {
        let error = Reference::parse("smollm9:1b").unwrap_err().to_string();
        assert!(error.contains("smollm9:1b") && error.contains("smollm2:135m"), "{error}");
    }
}
