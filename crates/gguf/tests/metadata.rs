//! Typed access to metadata: what is accepted for what, and what an error says.
#![allow(clippy::unwrap_used, reason = "helpers of tests unwrap as tests do")]

use minfer_gguf::{Error, Index, Kind, OwnedValue, ValueType, Writer};

fn index(pairs: &[(&str, OwnedValue)]) -> Index {
    let writer = pairs.iter().fold(Writer::new(), |w, (key, value)| w.kv(*key, value.clone()));
    Index::from_bytes(writer.to_bytes()).unwrap()
}

fn message<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn any_integer_type_is_a_count() {
    let values: [OwnedValue; 8] = [
        7u8.into(),
        7i8.into(),
        7u16.into(),
        7i16.into(),
        7u32.into(),
        7i32.into(),
        7u64.into(),
        7i64.into(),
    ];
    for value in values {
        let index = index(&[("n", value)]);
        let metadata = index.metadata();
        assert_eq!(metadata.u32("n").unwrap(), Some(7));
        assert_eq!(metadata.required_u64("n").unwrap(), 7);
        assert_eq!(metadata.required_usize("n").unwrap(), 7);
        assert_eq!(metadata.required_i32("n").unwrap(), 7);
        assert!(metadata.f32("n").is_err());
        assert!(metadata.bool("n").is_err());
    }
}

#[test]
fn wrong_values_are_refused_by_key_expectation_and_finding() {
    let index = index(&[
        ("minus", (-1).into()),
        ("big", u64::MAX.into()),
        ("real", 2.5f32.into()),
        ("text", "two".into()),
        ("bytes", OwnedValue::Str(vec![0xff])),
        ("mixed", vec![1, -1].into()),
    ]);
    let metadata = index.metadata();
    assert_eq!(
        message(metadata.u32("minus")),
        "the metadata key \"minus\": expected an integer from 0 to 4294967295, found i32 -1"
    );
    assert!(message(metadata.u32("big")).ends_with("found u64 18446744073709551615"));
    assert!(message(metadata.usize("real")).ends_with("found f32 2.5"));
    assert!(message(metadata.f32("text")).ends_with("expected an f32 or f64, found string \"two\""));
    assert!(message(metadata.str("bytes")).ends_with("expected a UTF-8 string, found string \"\u{fffd}\""));
    assert!(message(metadata.u32s("mixed")).ends_with("found array of 2 i32"));
    assert_eq!(metadata.i32s("mixed").unwrap(), Some(vec![1, -1]));
    assert_eq!(message(metadata.required_str("none")), "the metadata key \"none\" is missing");
    assert_eq!(metadata.str("none").unwrap(), None);
    assert!(message(metadata.architecture()).contains("general.architecture"));
}

#[test]
fn reals_have_either_type() {
    let index = index(&[("a", 1e-5f32.into()), ("b", 1e-5f64.into()), ("c", vec![0.5f64].into())]);
    assert_eq!(index.metadata().f32("a").unwrap(), index.metadata().f32("b").unwrap());
    assert_eq!(index.metadata().f32s("c").unwrap(), Some(vec![0.5]));
}

#[test]
fn strings_that_are_not_utf8_are_still_bytes() {
    let strings = OwnedValue::Array(ValueType::String, vec!["a".into(), OwnedValue::Str(vec![0xe4])]);
    let index = index(&[("tokens", strings)]);
    let tokens = index.metadata().required_array("tokens").unwrap();
    assert_eq!(tokens.byte_strings().unwrap().collect::<Vec<_>>(), [&b"a"[..], &[0xe4]]);
    assert!(index.metadata().strings("tokens").is_err());
    assert_eq!(index.metadata().required_array("tokens").unwrap().u32s(), None);
}

#[test]
fn alignment_is_a_power_of_two() {
    for alignment in [0, 1, 4, 24, 33, 1 << 21, 1 << 31] {
        let bytes = Writer::new().kv("general.alignment", alignment as u32).to_bytes();
        let error = Index::from_bytes(bytes).unwrap_err();
        assert!(matches!(error.kind(), Kind::Value { key, .. } if key == "general.alignment"), "{error}");
    }
    assert_eq!(index(&[("general.alignment", 64u64.into())]).metadata().alignment().unwrap(), 64);
    assert_eq!(index(&[]).metadata().alignment().unwrap(), 32);
}

#[test]
fn deep_nesting_is_refused() {
    let nest = |value: OwnedValue| OwnedValue::Array(ValueType::Array, vec![value]);
    let deep = |n| (0..n).fold(OwnedValue::from(vec![1u8]), |value, _| nest(value));
    let read = |value| Index::from_bytes(Writer::new().kv("deep", value).to_bytes());
    assert!(read(deep(7)).is_ok());
    assert!(message(read(deep(8))).contains("\"deep\" has arrays nested more than 8 deep"));
    assert!(matches!(read(deep(2000)).unwrap_err().kind(), Kind::Nesting { .. }));
}
