//! Mapped files that change while they are in use.
#![allow(clippy::unwrap_used, reason = "helpers of tests unwrap as tests do")]
#![cfg(unix)]
// One test maps a file without our protection.
#![allow(unsafe_code)]

use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use minfer_gguf::{Index, Kind, Mapping, Writer};
use minfer_tensor::{DType, Shape};

const ELEMENTS: usize = 1 << 20;

/// A model of one tensor of 1 MiB of sevens.
fn model(dir: &Path) -> PathBuf {
    let path = dir.join("model.gguf");
    let shape = Shape::new(&[ELEMENTS / 4]).unwrap();
    let writer = Writer::new().tensor("w", DType::F32, shape, vec![7; ELEMENTS]);
    writer.write_to(File::create(&path).unwrap()).unwrap();
    path
}

fn map(path: &Path) -> (Index, Mapping) {
    let index = Index::open(path).unwrap();
    let mapping = Mapping::open(&index.parts()[0]).unwrap();
    (index, mapping)
}

fn sum(index: &Index, mapping: &Mapping) -> u64 {
    let bytes = mapping.bytes(index.tensor("w").unwrap().range()).unwrap();
    bytes.iter().map(|&byte| u64::from(byte)).sum()
}

/// What `check` says happened.
fn change(mapping: &Mapping) -> &'static str {
    match mapping.check().unwrap_err().kind() {
        Kind::Changed { how } => how,
        other => panic!("{other}"),
    }
}

#[test]
fn an_untouched_file_reads_and_checks() {
    let dir = tempfile::tempdir().unwrap();
    let (index, mapping) = map(&model(dir.path()));
    let range = index.tensor("w").unwrap().range();
    mapping.prefetch(range.clone());
    assert_eq!(sum(&index, &mapping), 7 * ELEMENTS as u64);
    mapping.release(range.clone());
    assert_eq!(sum(&index, &mapping), 7 * ELEMENTS as u64);
    mapping.check().unwrap();
    assert!(mapping.bytes(range.start..range.end + 1).is_none());
    assert_eq!(mapping.len(), index.parts()[0].len);
}

#[test]
fn a_cut_file_ends_in_an_error_not_a_signal() {
    let dir = tempfile::tempdir().unwrap();
    let path = model(dir.path());
    let (index, mapping) = map(&path);
    OpenOptions::new().write(true).open(&path).unwrap().set_len(4096).unwrap();
    assert!(sum(&index, &mapping) < 7 * ELEMENTS as u64);
    assert_eq!(change(&mapping), "cut");
    assert!(mapping.check().unwrap_err().to_string().contains("model.gguf: the file was cut while in use"));
}

#[test]
fn a_cut_is_remembered_when_the_file_grows_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = model(dir.path());
    let (index, mapping) = map(&path);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    let len = file.metadata().unwrap().len();
    file.set_len(0).unwrap();
    assert_eq!(sum(&index, &mapping), 0);
    file.set_len(len).unwrap();
    assert_eq!(change(&mapping), "unreadable");
}

#[test]
fn many_threads_survive_a_cut_of_several_mappings() {
    let dir = tempfile::tempdir().unwrap();
    let path = model(dir.path());
    let (index, cut) = map(&path);
    let other_dir = tempfile::tempdir().unwrap();
    let (other_index, whole) = map(&model(other_dir.path()));
    OpenOptions::new().write(true).open(&path).unwrap().set_len(8192).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8usize {
            let (index, cut, other_index, whole) = (&index, &cut, &other_index, &whole);
            scope.spawn(move || {
                let bytes = cut.bytes(index.tensor("w").unwrap().range()).unwrap();
                // Each thread begins elsewhere, so that their faults meet.
                let pages = bytes.chunks(4096).cycle().skip(thread * 31).take(bytes.len() / 4096);
                let seen: u64 = pages.map(|page| u64::from(page[0])).sum();
                assert!(seen <= 7 * 3);
                assert_eq!(sum(other_index, whole), 7 * ELEMENTS as u64);
            });
        }
    });
    assert_eq!(change(&cut), "cut");
    whole.check().unwrap();
}

#[test]
fn a_rewritten_file_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let path = model(dir.path());
    let (_, mapping) = map(&path);
    let mut file = OpenOptions::new().write(true).open(&path).unwrap();
    file.seek(SeekFrom::Start(5000)).unwrap();
    file.write_all(&[1, 2, 3]).unwrap();
    // The clock of a file system may be coarse.
    file.set_modified(SystemTime::now() + Duration::from_secs(5)).unwrap();
    assert_eq!(change(&mapping), "rewritten");
}

#[test]
fn a_file_that_changed_before_it_was_mapped_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = model(dir.path());
    let index = Index::open(&path).unwrap();
    OpenOptions::new().write(true).open(&path).unwrap().set_len(4096).unwrap();
    assert!(matches!(Mapping::open(&index.parts()[0]).unwrap_err().kind(), Kind::Changed { how: "cut" }));
}

#[test]
fn a_replaced_file_stays_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let path = model(dir.path());
    let (index, mapping) = map(&path);
    let new = dir.path().join("new");
    fs::write(&new, "something else").unwrap();
    fs::rename(&new, &path).unwrap();
    assert_eq!(sum(&index, &mapping), 7 * ELEMENTS as u64);
    mapping.check().unwrap();
}

#[test]
fn bytes_in_memory_cannot_be_mapped() {
    let index = Index::from_bytes(Writer::new().to_bytes()).unwrap();
    assert!(Mapping::open(&index.parts()[0]).is_err());
}

/// A fault that is none of ours ends the process as it always did: run in a child, as that is its end.
#[test]
fn a_fault_elsewhere_still_ends_the_process() {
    const CHILD: &str = "MINFER_TEST_FAULT_ELSEWHERE";
    if std::env::var_os(CHILD).is_some() {
        let dir = tempfile::tempdir().unwrap();
        let path = model(dir.path());
        let _ours = map(&path);
        // SAFETY: read only below, to fault.
        let foreign = unsafe { memmap2::Mmap::map(&File::open(&path).unwrap()).unwrap() };
        OpenOptions::new().write(true).open(&path).unwrap().set_len(0).unwrap();
        std::process::exit(std::hint::black_box(foreign[ELEMENTS / 2]).into());
    }
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_fault_elsewhere_still_ends_the_process"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    assert_eq!(child.status.signal(), Some(libc::SIGBUS));
}
