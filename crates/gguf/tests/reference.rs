//! A file of the Python package `gguf`, written by `data/generate.py`: read, and written again.
#![allow(clippy::unwrap_used, reason = "helpers of tests unwrap as tests do")]

use minfer_gguf::{Index, OwnedValue, Value, Writer};
use minfer_tensor::{DType, decode_row};

const FILE: &[u8] = include_bytes!("data/python.gguf");

fn index() -> Index {
    Index::from_bytes(FILE.to_vec()).unwrap()
}

#[test]
fn metadata_is_what_the_reference_wrote() {
    let index = index();
    let metadata = index.metadata();
    assert_eq!(metadata.architecture().unwrap(), "llama");
    assert_eq!(metadata.alignment().unwrap(), 64);
    let integers = ["x.u8", "x.i8", "x.u16", "x.i16", "x.u32", "x.i32", "x.u64", "x.i64"];
    let found = integers.map(|key| metadata.get(key).unwrap().as_integer().unwrap());
    let expected = [200, -100, 60_000, -30_000, 4_000_000_000, -2_000_000_000, (1 << 63) + 1, -(1 << 62)];
    assert_eq!(found, expected);
    assert_eq!(metadata.f32("x.f32").unwrap(), Some(0.1));
    assert!(matches!(metadata.get("x.f64"), Some(Value::F64(0.1))));
    assert_eq!(metadata.bool("x.bool").unwrap(), Some(true));
    assert_eq!(metadata.str("x.string").unwrap(), Some("Grüße"));
    assert_eq!(metadata.strings("x.strings").unwrap(), Some(vec!["a", "", "ßb"]));
    assert_eq!(metadata.i32s("x.ints").unwrap(), Some(vec![1, -2, 3]));
    assert_eq!(metadata.f32s("x.floats").unwrap(), Some(vec![0.5, -1.5]));
    assert_eq!(metadata.bools("x.bools").unwrap(), Some(vec![true, false]));
}

#[test]
fn tensors_are_what_the_reference_wrote() {
    let index = index();
    let shapes: Vec<_> =
        index.tensors().iter().map(|t| (t.name.as_str(), t.dtype, t.shape.to_string())).collect();
    let expected =
        [("norm", DType::F32, "3"), ("matrix", DType::Q8_0, "32 x 3"), ("half", DType::F16, "2 x 2")];
    assert_eq!(shapes, expected.map(|(name, dtype, shape)| (name, dtype, shape.to_owned())));
    let values = |name: &str| {
        let tensor = index.tensor(name).unwrap();
        let range = tensor.range().start as usize..tensor.range().end as usize;
        let mut values = vec![0.0; tensor.shape.n_elements()];
        decode_row(tensor.dtype, &FILE[range], &mut values).unwrap();
        values
    };
    assert_eq!(values("norm"), [0.0, 1.0, 2.0]);
    assert_eq!(values("half"), [1.0, 2.0, 3.0, 4.0]);
    for (i, x) in values("matrix").into_iter().enumerate() {
        assert!((x - (i as f32 / 47.5 - 1.0)).abs() < 0.005, "element {i}: {x}");
    }
}

#[test]
fn our_writer_makes_the_same_bytes() {
    let index = index();
    let mut writer = Writer::new();
    for (key, value) in index.metadata().iter() {
        writer = match key {
            "general.alignment" => writer.alignment(64),
            _ => writer.kv(key, OwnedValue::from(value)),
        };
    }
    for tensor in index.tensors() {
        let range = tensor.range().start as usize..tensor.range().end as usize;
        writer = writer.tensor(&*tensor.name, tensor.dtype, tensor.shape, &FILE[range]);
    }
    assert_eq!(writer.to_bytes(), FILE);
}
