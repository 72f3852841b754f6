//! Matrix products and gathers of every format.

use minfer_tensor::{Bytes, DType, decode_row, encode_row};
use minfer_testkit::cases::WEIGHT_TYPES;
use minfer_testkit::rng::Rng;

use super::machine::{Machine, Memory};
use crate::kernels::{Access, GetRowsParams, Kernel, MatMulParams, Params};

/// A weight, as bytes and as numbers.
struct Weight {
    cols: usize,
    row_bytes: usize,
    bytes: Vec<u8>,
    values: Vec<f32>,
}

impl Weight {
    fn random(format: DType, rows: usize, cols: usize) -> Self {
        let row_bytes = format.row_bytes(cols).and_then(Bytes::to_usize).expect("whole blocks");
        let mut bytes = vec![0; rows * row_bytes];
        let mut values = Rng::new(cols as u64).normals(rows * cols, 1.0);
        for (values, bytes) in values.chunks_exact_mut(cols).zip(bytes.chunks_exact_mut(row_bytes)) {
            encode_row(format, values, bytes).expect("whole blocks");
            decode_row(format, bytes, values).expect("whole blocks");
        }
        Self { cols, row_bytes, bytes, values }
    }

    fn row(&self, i: usize) -> &[f32] {
        &self.values[i * self.cols..][..self.cols]
    }
}

fn word(n: usize) -> u32 {
    u32::try_from(n).expect("a small number")
}

/// Columns of a test: with a last group of less than eight, if rows need not be whole blocks.
fn odd_cols(format: DType) -> usize {
    if format.block_len() == 1 { 2 * 64 * 8 + 5 } else { 3 * format.block_len() }
}

/// The product of rows 3.. of a weight with rows of x that lie between NaNs, as columns 3.. of a wider result.
fn check_product(kernel: Kernel, format: DType, rows: usize) {
    const FIRST_ROW: usize = 3;
    const X: usize = 7;
    const OUT: usize = 11;
    let Some(machine) = Machine::get() else { return };
    let (cols, n_out) = (odd_cols(format), 70);
    let w = Weight::random(format, FIRST_ROW + n_out, cols);
    let out_cols = FIRST_ROW + n_out + 2;
    let mut x = vec![f32::NAN; X + rows * cols + 9];
    x[X..][..rows * cols].copy_from_slice(&Rng::new(1).normals(rows * cols, 1.0));
    // A row of 16-bit numbers may begin within a word, but a binding's first row does not.
    let skipped = FIRST_ROW / 2 * 2;
    let params = MatMulParams {
        rows: word(rows),
        cols: word(cols),
        n_out: word(n_out),
        row_bytes: word(w.row_bytes),
        weights: word((FIRST_ROW - skipped) * w.row_bytes),
        x: word(X),
        out: word(OUT + FIRST_ROW),
        out_cols: word(out_cols),
    };
    let untouched = vec![-5.5f32; OUT + rows * out_cols];
    let mut memory = [
        Memory::new(&w.bytes[skipped * w.row_bytes..], &[0]),
        Memory::new(&x, &[1]),
        Memory::new(&untouched, &[2]),
    ];
    machine.run(kernel, &Params::MatMul(params), &mut memory);
    let found = memory[2].floats();
    assert_eq!(found[..OUT], untouched[..OUT]);
    let (mut error, mut power) = (0.0, 0.0);
    for (row, found) in found[OUT..].chunks_exact(out_cols).enumerate() {
        for (i, &found) in found.iter().enumerate() {
            if !(FIRST_ROW..FIRST_ROW + n_out).contains(&i) {
                assert_eq!(found, -5.5, "{kernel:?}: row {row}, column {i}");
                continue;
            }
            let x = &x[X + row * cols..][..cols];
            let expected: f64 = w.row(i).iter().zip(x).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum();
            error += (f64::from(found) - expected).powi(2);
            power += expected * expected;
        }
    }
    assert!(error <= 1e-12 * power, "{kernel:?}, {rows} rows: {:.1e}", error / power);
}

#[test]
fn products_with_a_part_of_a_weight_fill_their_columns() {
    for format in WEIGHT_TYPES {
        check_product(Kernel::MatVec { format, tokens: 1, subgroup: false }, format, 3);
        check_product(Kernel::MatMul { format }, format, 67);
    }
    for (format, tokens) in [(DType::Q8_0, 1), (DType::Q6K, 2), (DType::F16, 4)] {
        check_product(Kernel::MatVec { format, tokens, subgroup: false }, format, 6);
        check_product(Kernel::MatVec { format, tokens, subgroup: true }, format, 3);
    }
}

#[test]
fn parts_of_a_table_write_the_rows_that_they_have() {
    let Some(machine) = Machine::get() else { return };
    for format in WEIGHT_TYPES {
        let cols = if format.block_len() == 1 { 21 } else { format.block_len() };
        let w = Weight::random(format, 10, cols);
        let ids = [0i32, 3, 4, 9, -1, 7, -7, 12];
        let mut memory = [
            Memory::new(&w.bytes, &[0]),
            Memory::new(&[[i32::MIN].as_slice(), &ids].concat(), &[1]),
            Memory::new(&vec![f32::NAN; 2 + ids.len() * cols], &[2]),
        ];
        for (first_row, n_rows) in [(0, 4), (4, 6)] {
            let params = GetRowsParams {
                rows: word(ids.len()),
                cols: word(cols),
                first_row: word(first_row),
                n_rows: word(n_rows),
                row_bytes: word(w.row_bytes),
                table: word(first_row * w.row_bytes),
                ids: 1,
                out: 2,
            };
            let kernel = Kernel::GetRows { format, table: Access::Read };
            machine.run(kernel, &Params::GetRows(params), &mut memory);
        }
        let found = memory[2].floats();
        assert!(found[..2].iter().all(|x| x.is_nan()), "{format}");
        for (id, found) in ids.iter().zip(found[2..].chunks_exact(cols)) {
            match *id {
                12 => assert!(found.iter().all(|x| x.is_nan()), "{format}: a row beyond the table"),
                id if id < 0 => assert!(found.iter().all(|&x| x == 0.0), "{format}: no row"),
                id => assert_eq!(found, w.row(id as usize), "{format}: row {id}"),
            }
        }
    }
}
