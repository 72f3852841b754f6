//! Views of raw bytes as blocks, without a copy.
// The one place of this crate that reinterprets memory.
#![allow(unsafe_code)]

use crate::quant::{BF16, F16, F32, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0};

/// Types that any `size_of` bytes at any address are a valid value of.
///
/// # Safety
/// The type has alignment 1, no padding, no interior mutability, and every bit pattern is valid.
pub unsafe trait Pod: Copy + 'static {}

macro_rules! pod {
    ($($block:ty),*) => {$(
        const _: () = assert!(align_of::<$block>() == 1);
        // SAFETY: a `repr(C)` or transparent struct of byte arrays, whose alignment is asserted above.
        unsafe impl Pod for $block {}
    )*};
}
pod!(F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4K, Q5K, Q6K);

/// The bytes as blocks; `None` where their number is no multiple of a block.
#[must_use]
pub fn blocks<B: Pod>(bytes: &[u8]) -> Option<&[B]> {
    if !bytes.len().is_multiple_of(size_of::<B>()) {
        return None;
    }
    let len = bytes.len() / size_of::<B>();
    // SAFETY: `Pod` makes every address and bit pattern valid; `len` blocks are exactly these bytes, which
    // the result borrows.
    Some(unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), len) })
}

/// The bytes as blocks to write; `None` where their number is no multiple of a block.
#[must_use]
pub fn blocks_mut<B: Pod>(bytes: &mut [u8]) -> Option<&mut [B]> {
    if !bytes.len().is_multiple_of(size_of::<B>()) {
        return None;
    }
    let len = bytes.len() / size_of::<B>();
    // SAFETY: as in `blocks`, and the borrow is unique; a `Pod` has no padding that could leave a byte unset.
    Some(unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), len) })
}

/// The bytes of blocks.
#[must_use]
pub fn bytes<B: Pod>(blocks: &[B]) -> &[u8] {
    // SAFETY: a `Pod` has no padding, so all its bytes are set; the result borrows `blocks`.
    unsafe { std::slice::from_raw_parts(blocks.as_ptr().cast(), size_of_val(blocks)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn casts_at_any_offset_and_refuses_partial_blocks() {
        let data: Vec<u8> = (0..37).collect();
        let view: &[Q4_0] = blocks(&data[1..37]).unwrap();
        assert_eq!((view.len(), view[1].d, view[1].qs[0]), (2, [19, 20], 21));
        assert_eq!(bytes(view), &data[1..37]);
        assert!(blocks::<Q4_0>(&data).is_none());
        assert_eq!(blocks::<Q8_0>(&[]).map(<[Q8_0]>::len), Some(0));
    }
}
