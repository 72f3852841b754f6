//! Decoding and encoding against the Python package `gguf`; `data/generate.py` wrote the vectors.
#![allow(clippy::unwrap_used, reason = "helpers of tests unwrap as tests do")]

use std::path::Path;

use minfer_tensor::{DType, decode_row, encode_row};

/// The two halves of a golden file: as many blocks as fit, and their elements.
fn golden(dtype: DType, direction: &str) -> Option<(Vec<u8>, Vec<f32>)> {
    let name = format!("{}.{direction}", dtype.name().to_lowercase());
    let file = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)).ok()?;
    let block = usize::try_from(dtype.block_bytes().get()).unwrap();
    let n_blocks = file.len() / (block + 4 * dtype.block_len());
    let (blocks, floats) = match direction {
        "decode" => file.split_at(n_blocks * block),
        _ => {
            let (floats, blocks) = file.split_at(n_blocks * dtype.block_len() * 4);
            (blocks, floats)
        }
    };
    let floats = floats.as_chunks::<4>().0.iter().map(|&x| f32::from_le_bytes(x)).collect();
    Some((blocks.to_vec(), floats))
}

#[test]
fn decodes_bit_for_bit_as_the_reference() {
    let with_vectors = DType::ALL.into_iter().filter(|&d| d != DType::F32 && d != DType::I32);
    for dtype in with_vectors {
        let (blocks, expected) = golden(dtype, "decode").unwrap_or_else(|| panic!("no vectors for {dtype}"));
        let mut found = vec![0.0; expected.len()];
        decode_row(dtype, &blocks, &mut found).unwrap();
        for (i, (x, y)) in found.iter().zip(&expected).enumerate() {
            let same = x.to_bits() == y.to_bits() || (x.is_nan() && y.is_nan());
            assert!(same, "{dtype} element {i}: {x:e}, expected {y:e}");
        }
    }
}

#[test]
fn encodes_bit_for_bit_as_the_reference() {
    use DType::{BF16, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0};
    for dtype in [F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0] {
        let (expected, values) = golden(dtype, "encode").unwrap_or_else(|| panic!("no vectors for {dtype}"));
        let mut found = vec![0; expected.len()];
        encode_row(dtype, &values, &mut found).unwrap();
        let block = usize::try_from(dtype.block_bytes().get()).unwrap();
        for (i, (x, y)) in found.chunks(block).zip(expected.chunks(block)).enumerate() {
            assert_eq!(x, y, "{dtype} block {i}");
        }
    }
}
