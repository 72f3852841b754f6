//! Every environment variable that minfer reads, in one place.
//!
//! Besides the three below, each option of the engine and of the output has a twin, `MINFER_` and its name
//! ([`option_twin`]): `--gpu-layers` is `MINFER_GPU_LAYERS`. A flag wins over its twin; an empty twin is no twin.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

/// The folder where fetched models are kept.
pub(crate) const CACHE: &str = "MINFER_CACHE";
/// The address of the hub that `hf:` references and aliases are fetched from.
pub(crate) const HUB: &str = "MINFER_HUB";
/// The kernels that the CPU runs, by name.
pub(crate) const CPU_LEVEL: &str = "MINFER_CPU_LEVEL";

/// The name of the variable that stands in for `--long`.
pub(crate) fn option_twin(long: &str) -> String {
    format!("MINFER_{}", long.to_uppercase().replace('-', "_"))
}

/// Whether a variable is set to something.
pub(crate) fn is_set(name: &str) -> bool {
    value(name).is_some()
}

/// The hub's address, if another than the usual one is asked for.
pub(crate) fn hub() -> Option<String> {
    value(HUB).map(|hub| hub.to_string_lossy().trim_end_matches('/').to_owned())
}

/// The name of the kernels that the CPU is to run, if others than the best are asked for.
pub(crate) fn cpu_level() -> Option<String> {
    value(CPU_LEVEL).map(|name| name.to_string_lossy().into_owned())
}

/// `$MINFER_CACHE`, else minfer's folder in the platform's cache folder; `None` where there is neither.
pub(crate) fn cache_dir() -> Option<PathBuf> {
    value(CACHE).map(PathBuf::from).or_else(|| platform_cache().map(|dir| dir.join("minfer")))
}

/// Whether colours are unwelcome: <https://no-color.org>, or a terminal that has none.
pub(crate) fn no_color() -> bool {
    is_set("NO_COLOR") || value("TERM").is_some_and(|term| term == "dumb")
}

/// Whether a desktop session runs, as drivers judge it.
pub(crate) fn has_display() -> bool {
    is_set("XDG_RUNTIME_DIR")
}

/// Whether the locale's characters are UTF-8.
pub(crate) fn utf8_locale() -> bool {
    if cfg!(windows) {
        return true;
    }
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(value).unwrap_or_default();
    let locale = locale.to_string_lossy().to_uppercase();
    locale.contains("UTF-8") || locale.contains("UTF8")
}

fn platform_cache() -> Option<PathBuf> {
    if cfg!(windows) {
        value("LOCALAPPDATA").map(PathBuf::from)
    } else if cfg!(target_os = "macos") {
        value("HOME").map(|home| PathBuf::from(home).join("Library/Caches"))
    } else {
        value("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .filter(|dir| dir.is_absolute())
            .or_else(|| value("HOME").map(|home| PathBuf::from(home).join(".cache")))
    }
}

fn value(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twins_are_named_after_their_option() {
        assert_eq!(option_twin("gpu-layers"), "MINFER_GPU_LAYERS");
        assert_eq!(option_twin("ctx"), "MINFER_CTX");
    }
}
