//! Rows of states, bit for bit as the host encodes them.

use minfer_tensor::{Bytes, DType, encode_row};
use minfer_testkit::cases::STATE_TYPES;
use minfer_testkit::rng::Rng;

use super::machine::{Machine, Memory};
use crate::kernels::{Kernel, Params, WriteRowsParams};

const STATE_ROWS: usize = 9;

/// A state of which the rows of `x` at `positions` are as written, the others as before. Rows have `cols` columns.
fn check(state: DType, cols: usize, x: &[f32], positions: &[i32]) {
    let Some(machine) = Machine::get() else { return };
    let row_bytes = state.row_bytes(cols).and_then(Bytes::to_usize).expect("whole blocks");
    let before = vec![0xa5u8; STATE_ROWS * row_bytes];
    let mut expected = before.clone();
    for (x, &position) in x.chunks_exact(cols).zip(positions) {
        if let Ok(position) = usize::try_from(position)
            && position < STATE_ROWS
        {
            let out = &mut expected[position * row_bytes..][..row_bytes];
            encode_row(state, x, out).expect("whole blocks");
        }
    }
    let params = WriteRowsParams {
        rows: u32::try_from(positions.len()).unwrap(),
        cols: u32::try_from(cols).unwrap(),
        x: 0,
        positions: 0,
        state: 0,
        state_rows: u32::try_from(STATE_ROWS).unwrap(),
    };
    let mut memory = [Memory::new(&before, &[0]), Memory::new(x, &[1]), Memory::new(positions, &[2])];
    machine.run(Kernel::WriteRows { state }, &Params::WriteRows(params), &mut memory);
    let found = &memory[0].bytes;
    let off = found.iter().zip(&expected).position(|(found, expected)| found != expected);
    assert_eq!(off, None, "{state}, {cols} columns: the first byte that is off; rows have {row_bytes}");
}

#[test]
fn rows_are_encoded_between_untouched_neighbours() {
    let positions = [3, -1, 8, 0, 3, 9, i32::MAX, 5, 6];
    for state in STATE_TYPES {
        for cols in if state.block_len() == 1 { [1, 51, 700] } else { [32, 96, 2080] } {
            let x = Rng::new(cols as u64).normals(positions.len() * cols, 2.0);
            check(state, cols, &x, &positions);
        }
    }
}

#[test]
fn halves_are_those_of_the_host() {
    let mut x =
        vec![65504.0, 65519.9, 65520.0, 65536.0, 1e30, f32::INFINITY, f32::NAN, 6e-8, 2.98e-8, 2.99e-8, 0.0];
    // Ties to even, above and below, of normal and subnormal numbers.
    for half in [0x0001u16, 0x0002, 0x03ff, 0x0400, 0x3c00, 0x3c01, 0x7bfe] {
        let (low, high) = (half::f16::from_bits(half).to_f32(), half::f16::from_bits(half + 1).to_f32());
        let tie = low.midpoint(high);
        x.extend([low, tie, tie.next_up(), tie.next_down()]);
    }
    x.extend((0..40_000).map(|i| 1e-9 * 1.001f32.powi(i)));
    x.extend(x.clone().iter().map(|x| -x));
    check(DType::F16, x.len(), &x, &[1]);
}

#[test]
fn blocks_of_extreme_numbers_are_those_of_the_host() {
    let fills = [0.0, 1e-9, 3e38, f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
    let mut x = Vec::new();
    for fill in fills {
        let mut block = Rng::new(3).normals(32, 1.0);
        block[5] = fill;
        x.extend(block);
        x.extend([fill; 32]);
    }
    check(DType::Q8_0, x.len(), &x, &[2]);
}
