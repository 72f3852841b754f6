//! The files of the project.

use anyhow::{Context, Result};
use std::fs;
use std::path::Path;

/// A file, its path relative to the workspace and with `/`.
pub(super) struct Entry {
    pub(super) path: String,
    pub(super) bytes: u64,
}

/// All files except build products, hidden folders and downloaded models, sorted by path.
pub(super) fn files(root: &Path) -> Result<Vec<Entry>> {
    let mut files = Vec::new();
    walk(root, "", &mut files)?;
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

fn walk(root: &Path, below: &str, files: &mut Vec<Entry>) -> Result<()> {
    let dir = root.join(below);
    for entry in fs::read_dir(&dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if below.is_empty() { name.clone() } else { format!("{below}/{name}") };
        let kind = entry.file_type()?;
        if kind.is_dir() {
            let skipped = name.starts_with('.') || name == "target" || path == "models" || path == "shared";
            if !skipped {
                walk(root, &path, files)?;
            }
        } else if kind.is_file() {
            files.push(Entry { path, bytes: entry.metadata()?.len() });
        }
    }
    Ok(())
}

/// What is wrong if the test data, all `data/` folders together, is larger than `max` bytes.
pub(super) fn data_problem(files: &[Entry], max: u64) -> Option<String> {
    let is_data = |path: &str| path.split('/').rev().skip(1).any(|folder| folder == "data");
    let total: u64 = files.iter().filter(|file| is_data(&file.path)).map(|file| file.bytes).sum();
    (total > max).then(|| format!("the test data has {total} bytes; at most {max} are expected"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_data_folders_count() {
        let file = |path: &str, bytes| Entry { path: path.into(), bytes };
        let files = [file("a/data/x", 5), file("b/data/y/z", 6), file("c/data", 100), file("data.bin", 100)];
        assert!(data_problem(&files, 11).is_none());
        assert!(data_problem(&files, 10).unwrap().contains("11 bytes"));
    }

    #[test]
    fn build_products_are_not_files_of_the_project() {
        let root = tempfile::tempdir().unwrap();
        for dir in ["target", ".git", "src/target", "src/models"] {
            fs::create_dir_all(root.path().join(dir)).unwrap();
            fs::write(root.path().join(dir).join("f.rs"), "x").unwrap();
        }
        let found: Vec<String> = files(root.path()).unwrap().into_iter().map(|file| file.path).collect();
        assert_eq!(found, ["src/models/f.rs"]);
    }
}
