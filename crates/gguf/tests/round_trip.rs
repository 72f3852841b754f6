//! What is written is what is read.
#![allow(clippy::unwrap_used, reason = "helpers of tests unwrap as tests do")]

use minfer_gguf::{Index, OwnedValue, Value, ValueType, Writer};
use minfer_tensor::{Bytes, DType, Shape};
use proptest::prelude::*;

/// A value of any type; arrays of arrays down to `depth`.
fn value(depth: u32) -> BoxedStrategy<OwnedValue> {
    let scalar = prop_oneof![
        any::<u8>().prop_map(OwnedValue::from),
        any::<i8>().prop_map(OwnedValue::from),
        any::<u16>().prop_map(OwnedValue::from),
        any::<i16>().prop_map(OwnedValue::from),
        any::<u32>().prop_map(OwnedValue::from),
        any::<i32>().prop_map(OwnedValue::from),
        any::<u64>().prop_map(OwnedValue::from),
        any::<i64>().prop_map(OwnedValue::from),
        (-1e30f32..1e30).prop_map(OwnedValue::from),
        (-1e300..1e300).prop_map(OwnedValue::from),
        any::<bool>().prop_map(OwnedValue::from),
        prop::collection::vec(any::<u8>(), 0..20).prop_map(OwnedValue::Str),
    ];
    let array = prop_oneof![
        prop::collection::vec(any::<i16>(), 0..8).prop_map(OwnedValue::from),
        prop::collection::vec(any::<bool>(), 0..8).prop_map(OwnedValue::from),
        prop::collection::vec("\\PC{0,6}", 0..8).prop_map(OwnedValue::from_iter),
    ];
    if depth == 0 {
        return prop_oneof![scalar, array].boxed();
    }
    let arrays = prop::collection::vec(value(depth - 1), 0..4).prop_map(|values| {
        let element = values.first().map_or(ValueType::U8, OwnedValue::value_type);
        let same = values.into_iter().filter(|value| value.value_type() == element);
        OwnedValue::Array(element, same.collect())
    });
    prop_oneof![scalar, array, arrays].boxed()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn metadata_of_every_type(
        pairs in prop::collection::btree_map("[a-z.]{1,9}", value(3), 0..12),
        version in 2u32..=3,
    ) {
        let writer = pairs.iter().fold(Writer::new().version(version), |w, (key, v)| w.kv(key, v.clone()));
        let index = Index::from_bytes(writer.to_bytes()).unwrap();
        prop_assert_eq!(index.metadata().len(), pairs.len());
        for ((key, found), (expected_key, expected)) in index.metadata().iter().zip(&pairs) {
            prop_assert_eq!(key, expected_key);
            prop_assert_eq!(&OwnedValue::from(found), expected);
            prop_assert_eq!(&OwnedValue::from(index.metadata().get(key).unwrap()), expected);
        }
    }
}

fn two_tensors(alignment: u32) -> Writer<'static> {
    Writer::new()
        .kv("general.architecture", "test")
        .alignment(alignment)
        .tensor("a", DType::F32, Shape::new(&[3]).unwrap(), vec![1; 12])
        .tensor("b", DType::Q8_0, Shape::new(&[64, 2]).unwrap(), vec![2; 136])
}

#[test]
fn tensors_lie_where_the_index_says() {
    for alignment in [8, 32, 4096] {
        let bytes = two_tensors(alignment).to_bytes();
        let index = Index::from_bytes(bytes.clone()).unwrap();
        let b = index.tensor("b").unwrap();
        assert_eq!((b.dtype, b.shape.to_string().as_str(), b.part), (DType::Q8_0, "64 x 2", 0));
        assert_eq!(b.nbytes(), Bytes::new(136));
        for (name, fill) in [("a", 1), ("b", 2)] {
            let tensor = index.tensor(name).unwrap();
            assert!(tensor.offset.is_multiple_of(alignment.into()));
            let range = tensor.range().start as usize..tensor.range().end as usize;
            assert!(bytes[range].iter().all(|&byte| byte == fill), "{name} at alignment {alignment}");
        }
        assert_eq!(index.tensors().iter().map(|t| t.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert!(index.tensor("c").is_none());
    }
}

#[test]
fn streaming_writes_the_same_bytes() {
    let writer = two_tensors(64);
    let mut streamed = Vec::new();
    writer.write_to(&mut streamed).unwrap();
    assert_eq!(streamed, writer.to_bytes());
}

#[test]
fn a_file_on_disk_reads_as_its_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    // A header of several reads.
    let tokens: OwnedValue = (0..50_000).map(|i| format!("token {i}")).collect();
    let writer = two_tensors(32).kv("tokenizer.ggml.tokens", tokens);
    writer.write_to(std::fs::File::create(&path).unwrap()).unwrap();
    let index = Index::open(&path).unwrap();
    let tokens = index.metadata().required_strings("tokenizer.ggml.tokens").unwrap();
    assert_eq!((tokens.len(), tokens[49_999]), (50_000, "token 49999"));
    assert_eq!(index.tensors(), Index::from_bytes(writer.to_bytes()).unwrap().tensors());
    assert_eq!(index.parts()[0].path, path);
    assert_eq!(index.parts()[0].len, Bytes::from(writer.to_bytes().len()));
    let held = index.header_bytes();
    assert!(held > Bytes::new(900_000) && held < Bytes::new(1_100_000), "{held}");
}

#[test]
fn values_show_their_type_and_content() {
    let index = Index::from_bytes(
        Writer::new().kv("a", -1).kv("b", "x\u{1b}").kv("c", vec![1.5f32, 2.0]).kv("d", true).to_bytes(),
    );
    let index = index.unwrap();
    let shown: Vec<String> = index.metadata().iter().map(|(_, value)| value.to_string()).collect();
    assert_eq!(shown, ["i32 -1", "string \"x\\u{1b}\"", "array of 2 f32", "bool true"]);
    assert!(
        matches!(index.metadata().get("c"), Some(Value::Array(array)) if array.f32s() == Some(vec![1.5, 2.0]))
    );
}
