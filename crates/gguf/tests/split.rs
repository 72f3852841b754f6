//! Models in several files.
#![allow(clippy::unwrap_used, reason = "helpers of tests unwrap as tests do")]

use std::fs::File;
use std::path::{Path, PathBuf};

use minfer_gguf::{Index, Writer};
use minfer_tensor::{DType, Shape};

fn part(no: u32, count: u32) -> Writer<'static> {
    let shape = Shape::new(&[8]).unwrap();
    Writer::new()
        .kv("split.no", no)
        .kv("split.count", count)
        .kv("split.tensors.count", u64::from(count))
        .tensor(format!("t{no}"), DType::F32, shape, vec![no as u8; 32])
}

fn save(dir: &Path, name: &str, writer: &Writer<'_>) -> PathBuf {
    let path = dir.join(name);
    writer.write_to(File::create(&path).unwrap()).unwrap();
    path
}

fn save_parts(dir: &Path, count: u32) -> Vec<PathBuf> {
    (0..count).map(|no| save(dir, &format!("m-{:05}-of-{count:05}.gguf", no + 1), &part(no, count))).collect()
}

fn refusal(path: &Path) -> String {
    Index::open(path).unwrap_err().to_string()
}

#[test]
fn all_parts_make_one_index() {
    let dir = tempfile::tempdir().unwrap();
    let paths = save_parts(dir.path(), 3);
    let index = Index::open(&paths[0]).unwrap();
    assert_eq!(
        index.parts().iter().map(|part| &part.path).collect::<Vec<_>>(),
        paths.iter().collect::<Vec<_>>()
    );
    for no in 0..3 {
        let tensor = index.tensor(&format!("t{no}")).unwrap();
        assert_eq!(tensor.part, no);
        let mapping = minfer_gguf::Mapping::open(&index.parts()[no]).unwrap();
        assert_eq!(mapping.bytes(tensor.range()).unwrap(), [no as u8; 32]);
    }
}

#[test]
fn a_later_part_names_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let paths = save_parts(dir.path(), 2);
    assert!(refusal(&paths[1]).ends_with("this is part 2 of 2; open m-00001-of-00002.gguf instead"));
}

#[test]
fn missing_and_swapped_parts_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let paths = save_parts(dir.path(), 3);
    save(dir.path(), "m-00003-of-00003.gguf", &part(1, 3));
    let message = refusal(&paths[0]);
    assert!(message.contains("m-00003-of-00003.gguf") && message.contains("split.no"), "{message}");
    std::fs::remove_file(&paths[2]).unwrap();
    assert!(refusal(&paths[0]).ends_with("part 3 of 3 is missing: m-00003-of-00003.gguf"));
}

#[test]
fn a_tensor_in_two_parts_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let paths = save_parts(dir.path(), 2);
    let twice = Writer::new().kv("split.no", 1).kv("split.count", 2);
    let twice = twice.tensor("t0", DType::F32, Shape::new(&[8]).unwrap(), vec![0; 32]);
    save(dir.path(), "m-00002-of-00002.gguf", &twice);
    assert!(refusal(&paths[0]).contains("\"t0\": the name occurs twice"));
}

#[test]
fn a_first_part_under_another_name_finds_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let path = save(dir.path(), "renamed.gguf", &part(0, 2));
    assert!(refusal(&path).contains("must end in -00001-of-00002.gguf"));
    let path = save(dir.path(), "many.gguf", &part(0, 100_000));
    assert!(refusal(&path).contains("split.count is 100000, expected at most 99999"));
    let single = save(dir.path(), "single.gguf", &part(0, 1));
    assert_eq!(Index::open(single).unwrap().parts().len(), 1);
}
