use std::sync::atomic::AtomicUsize;

use super::*;

const QUANTIZED: [DType; 8] =
    [DType::Q4_0, DType::Q4_1, DType::Q5_0, DType::Q5_1, DType::Q8_0, DType::Q4K, DType::Q5K, DType::Q6K];

/// Largest difference to f64 arithmetic on the same quantized values, relative to the sum of magnitudes.
const SUM_TOLERANCE: f64 = 1e-6;
/// Largest error of a quantized activation, relative to the largest in its group.
const QUANT_TOLERANCE: f32 = 0.5 / 127.0 + 1e-6;

/// Bytes of a row, and the offsets of the halves in each block (which must be sane numbers).
fn layout(dtype: DType, k: usize) -> (usize, &'static [usize], usize) {
    let (block, bytes, halves): (usize, usize, &[usize]) = match dtype {
        DType::Q4_0 => (32, 18, &[0]),
        DType::Q4_1 => (32, 20, &[0, 2]),
        DType::Q5_0 => (32, 22, &[0]),
        DType::Q5_1 => (32, 24, &[0, 2]),
        DType::Q8_0 => (32, 34, &[0]),
        DType::Q4K => (256, 144, &[0, 2]),
        DType::Q5K => (256, 176, &[0, 2]),
        DType::Q6K => (256, 210, &[208]),
        DType::F32 => (1, 4, &[]),
        _ => (1, 2, &[]),
    };
    (k / block * bytes, halves, bytes)
}

/// Random weights of `rows` rows.
fn weights(rng: &mut Rng, dtype: DType, rows: usize, k: usize) -> Vec<u8> {
    let float = |rng: &mut Rng| match dtype {
        DType::F32 => rng.float().to_le_bytes().to_vec(),
        DType::F16 => half::f16::from_f32(rng.float()).to_le_bytes().to_vec(),
        _ => half::bf16::from_f32(rng.float()).to_le_bytes().to_vec(),
    };
    if !dtype.is_quantized() {
        return (0..rows * k).flat_map(|_| float(rng)).collect();
    }
    let (row, halves, block) = layout(dtype, k);
    let mut bytes: Vec<u8> = (0..rows * row).map(|_| rng.bits() as u8).collect();
    for block in bytes.chunks_exact_mut(block) {
        for &at in halves {
            let half = half::f16::from_f32(rng.float() * 0.1);
            block[at..at + 2].copy_from_slice(&half.to_le_bytes());
        }
    }
    bytes
}

/// The same weights in panels.
fn packed(dtype: DType, w: &[u8], rows: usize) -> Vec<u8> {
    let row = w.len() / rows;
    let mut out = vec![0xa5; packed_bytes(rows, row)];
    pack(dtype, w, row, &mut out);
    out
}

/// One product, the rows split at `splits`, or taken one after the other if there are none.
fn product(
    table: &Kernels,
    dtype: DType,
    w: &[u8],
    k: usize,
    rows: usize,
    x: &[f32],
    splits: &[usize],
) -> Vec<f32> {
    product_of(table, dtype, w, None, k, rows, x, splits)
}

/// One product of weights that may be packed.
#[allow(clippy::too_many_arguments, reason = "a product and how it is done")]
fn product_of(
    table: &Kernels,
    dtype: DType,
    w: &[u8],
    packed: Option<usize>,
    k: usize,
    rows: usize,
    x: &[f32],
    splits: &[usize],
) -> Vec<f32> {
    let tokens = x.len() / k;
    let mut acts = buffer(if dtype.is_quantized() { quantized_bytes(tokens, k) } else { 0 });
    let mut scratch = buffer(matmul_scratch_bytes(dtype, tokens, k));
    let mut out = vec![f32::NAN; tokens * rows];
    let taken = AtomicUsize::new(0);
    let rest = || Share::Rest { taken: &taken, rows, unit: 32 };
    // SAFETY: all buffers have the sizes that the kernels declare.
    unsafe {
        if dtype.is_quantized() {
            table.quantize(x.as_ptr(), tokens, k, 0..tokens, acts.as_mut_ptr());
        }
        let x = if dtype.is_quantized() { acts.as_ptr() } else { x.as_ptr().cast() };
        let mut from = 0;
        for &to in splits.iter().chain([&rows]) {
            table.matmul(MatMul {
                dtype,
                weights: w.as_ptr(),
                packed,
                k,
                rows: if splits.is_empty() { rest() } else { Share::Rows(from..to) },
                tokens,
                x,
                out: out.as_mut_ptr(),
                stride: rows,
                scratch: scratch.as_mut_ptr(),
            });
            from = to;
        }
    }
    out
}

/// Quantized and restored activations.
fn restored(x: &[f32]) -> Vec<f64> {
    let mut out = Vec::new();
    for group in x.chunks(32) {
        let peak = group.iter().fold(0.0f32, |m, x| m.max(x.abs()));
        let (d, inverse) = (peak / 127.0, 1.0 / (peak / 127.0));
        out.extend(group.iter().map(|x| f64::from((x * inverse).round_ties_even()) * f64::from(d)));
    }
    out
}

#[test]
fn scalar_products_match_f64() {
    let mut rng = Rng::new(1);
    for dtype in QUANTIZED.into_iter().chain([DType::F32, DType::F16, DType::BF16]) {
        let (rows, tokens, k) = (21, 5, 512);
        let w = weights(&mut rng, dtype, rows, k);
        let x = rng.floats(tokens * k);
        let y = product(scalar(), dtype, &w, k, rows, &x, &[]);
        for token in 0..tokens {
            let x = &x[token * k..(token + 1) * k];
            let a =
                if dtype.is_quantized() { restored(x) } else { x.iter().map(|&x| f64::from(x)).collect() };
            for row in 0..rows {
                let bytes = layout(dtype, k).0;
                let mut weights = vec![0.0; k];
                decode_row(dtype, &w[row * bytes..(row + 1) * bytes], &mut weights).unwrap();
                let terms = || weights.iter().zip(&a).map(|(&w, a)| f64::from(w) * a);
                let (sum, size) = (terms().sum::<f64>(), terms().map(f64::abs).sum::<f64>());
                let error = (f64::from(y[token * rows + row]) - sum).abs();
                // The decoder rounds each weight once more.
                assert!(error <= 4.0 * SUM_TOLERANCE * size, "{dtype:?}: error {error:e} of {size:e}");
            }
        }
    }
}

#[test]
fn activations_are_within_half_a_step() {
    let mut rng = Rng::new(2);
    let x = rng.floats(64 * 32);
    for (group, restored) in x.chunks(32).zip(restored(&x).chunks(32)) {
        let peak = group.iter().fold(0.0f32, |m, x| m.max(x.abs()));
        for (x, r) in group.iter().zip(restored) {
            assert!((x - *r as f32).abs() <= QUANT_TOLERANCE * peak);
        }
    }
}

#[test]
fn a_bad_activation_reaches_every_output() {
    let mut rng = Rng::new(3);
    for table in Kernels::available() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for tokens in [1, 5] {
                let w = weights(&mut rng, DType::Q4_1, 16, 64);
                let mut x = rng.floats(tokens * 64);
                x[40] = bad;
                let y = product(table, DType::Q4_1, &w, 64, 16, &x, &[]);
                assert!(y[..16].iter().all(|y| !y.is_finite()) && y[16..].iter().all(|y| y.is_finite()));
            }
        }
    }
}

#[test]
fn every_f16_is_read_the_same() {
    let halves: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    let rows = halves.len() / 2;
    // A scale, and integers 1.
    let blocks: Vec<u8> = halves.chunks(2).flat_map(|half| [half, &[1; 32]].concat()).collect();
    let expected = [
        product(scalar(), DType::F16, &halves, 1, rows, &[1.0], &[]),
        product(scalar(), DType::Q8_0, &blocks, 32, rows, &[1.0; 32], &[]),
    ];
    for table in fast_tables() {
        let y = product(table, DType::F16, &halves, 1, rows, &[1.0], &[]);
        assert_same_bits(&y, &expected[0], table.name());
        let y = product(table, DType::Q8_0, &blocks, 32, rows, &[1.0; 32], &[]);
        assert_same_bits(&y, &expected[1], table.name());
    }
}

#[test]
fn zeros_and_tiny_activations_give_zeros() {
    let w = weights(&mut Rng::new(4), DType::Q4_0, 16, 32);
    for x in [0.0, 1e-42, f32::MIN_POSITIVE] {
        let y = product(scalar(), DType::Q4_0, &w, 32, 16, &[x; 32], &[]);
        assert!(y.iter().all(|y| y.abs() < 1e-36));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn tables_splits_and_batches_give_the_same_bits(
        seed in any::<u64>(),
        dtype in prop::sample::select(QUANTIZED.into_iter().chain([DType::F32, DType::F16, DType::BF16]).collect::<Vec<_>>()),
        rows in 1usize..70,
        tokens in 1usize..30,
        blocks in 1usize..4,
    ) {
        let mut rng = Rng::new(seed);
        let k = match dtype {
            DType::Q4K | DType::Q5K | DType::Q6K => 256 * blocks,
            _ if dtype.is_quantized() => 32 * blocks,
            _ => 1 + rng.below(100),
        };
        let w = weights(&mut rng, dtype, rows, k);
        let x = rng.floats(tokens * k);
        let expected = product(scalar(), dtype, &w, k, rows, &x, &[]);
        for table in Kernels::available() {
            let split = rng.below(rows + 1);
            let name = format!("{dtype:?} on {}", table.name());
            assert_same_bits(&product(table, dtype, &w, k, rows, &x, &[split]), &expected, &name);
            let token = rng.below(tokens);
            let alone = product(table, dtype, &w, k, rows, &x[token * k..(token + 1) * k], &[]);
            assert_same_bits(&alone, &expected[token * rows..(token + 1) * rows], &format!("{name}, alone"));
            if !dtype.is_quantized() {
                continue;
            }
            let (panels, split) = (packed(dtype, &w, rows), rng.below(rows + 1));
            let y = product_of(table, dtype, &panels, Some(0), k, rows, &x, &[split]);
            assert_same_bits(&y, &expected, &format!("{name}, packed"));
            let few = 1 + rng.below(3.min(tokens));
            let y = product_of(table, dtype, &panels, Some(0), k, rows, &x[..few * k], &[]);
            assert_same_bits(&y, &expected[..few * rows], &format!("{name}, packed, {few} tokens"));
            let (first, row_bytes) = (rng.below(rows.min(ROW_UNIT)), w.len() / rows);
            let y = product_of(table, dtype, &panels, Some(first), k, rows - first, &x, &[]);
            let part = product(table, dtype, &w[first * row_bytes..], k, rows - first, &x, &[]);
            assert_same_bits(&y, &part, &format!("{name}, packed, from row {first}"));
        }
    }

    #[test]
    fn a_packed_row_decodes_like_the_file_s(
        seed in any::<u64>(),
        dtype in prop::sample::select(QUANTIZED.to_vec()),
        rows in 1usize..40,
        blocks in 1usize..4,
    ) {
        let mut rng = Rng::new(seed);
        let k = blocks * dtype.block_len();
        let w = weights(&mut rng, dtype, rows, k);
        let (panels, row_bytes, row) = (packed(dtype, &w, rows), w.len() / rows, rng.below(rows));
        let (mut expected, mut found) = (vec![0.0; k], vec![0.0; k]);
        decode_row(dtype, &w[row * row_bytes..][..row_bytes], &mut expected).unwrap();
        decode_packed_row(dtype, &panels, row_bytes, row, &mut found);
        assert_same_bits(&found, &expected, &format!("{dtype:?}, row {row} of {rows}"));
    }
}
