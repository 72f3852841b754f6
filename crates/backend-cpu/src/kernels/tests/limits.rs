//! The loops do all that they are measured for.

use super::*;

#[test]
fn every_byte_is_read() {
    let mut bytes = vec![0; 3 * 512 + 7];
    for table in Kernels::available() {
        assert_eq!(table.read_through(&bytes), 0, "{}", table.name());
        for at in 0..bytes.len() {
            bytes[at] = 0x81;
            let shift = if at < 3 * 512 { at % 4 * 8 } else { 0 };
            assert_eq!(table.read_through(&bytes), 0x81 << shift, "{} at {at}", table.name());
            bytes[at] = 0;
        }
        assert_eq!(table.read_through(&[]), 0);
    }
}

#[test]
fn every_product_is_counted() {
    for table in Kernels::available() {
        let once = table.products(1);
        // Sixteen lanes of four bytes, for each of at least four sums.
        assert!(once >= 4 * 64 && once.is_multiple_of(64), "{}: {once}", table.name());
        assert_eq!(table.products(20_000), 20_000 * once, "{}", table.name());
        assert_eq!(table.products(0), 0);
    }
}
