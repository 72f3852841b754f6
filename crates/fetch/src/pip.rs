//! Wheels through the user's own pip, which knows the index, the proxy and the certificates to use.

use crate::error::{FetchError, escape};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Downloads the wheel of `package==version` into the empty folder `dir` and returns its path.
pub(crate) fn download(
    python: &OsStr,
    package: &str,
    version: &str,
    dir: &Path,
) -> Result<PathBuf, FetchError> {
    let requirement = format!("{package}=={version}");
    let failed = |reason: &str| FetchError::Pip { requirement: requirement.clone(), reason: escape(reason) };
    let output = Command::new(python)
        .args(["-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir"])
        .args(["--quiet", "--retries=1", "--no-input", "--disable-pip-version-check", "--dest"])
        .arg(dir)
        .arg(&requirement)
        .env("TMPDIR", std::path::absolute(dir).unwrap_or_else(|_| dir.into()))
        .stdin(Stdio::null())
        .output()
        .map_err(|error| failed(&format!("{} doesn't start: {error}", python.display())))?;
    if !output.status.success() {
        return Err(failed(
            &last_line(&output.stderr).unwrap_or_else(|| format!("pip ended with {}", output.status)),
        ));
    }
    let found =
        fs::read_dir(dir).map_err(FetchError::local("read", dir))?.flatten().map(|entry| entry.path());
    let wheel = found.into_iter().find(|path| path.extension() == Some(OsStr::new("whl")));
    wheel.ok_or_else(|| failed("pip brought no wheel"))
}

fn last_line(stderr: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(stderr);
    text.lines().map(str::trim).rfind(|line| !line.is_empty()).map(Into::into)
}
