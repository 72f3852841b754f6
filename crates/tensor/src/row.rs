//! Rows of any type to and from `f32`.

use crate::quant::{BF16, Block, F16, F32, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0};
use crate::{Bytes, DType, cast};

/// Why a row can't be decoded or encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RowError {
    /// The buffers don't fit each other.
    #[error("{elements} elements of {dtype} are not {} bytes", found.get())]
    Length {
        /// Type of the row.
        dtype: DType,
        /// Elements on the `f32` side.
        elements: usize,
        /// Bytes on the other side.
        found: Bytes,
    },
    /// The type holds no floating-point numbers.
    #[error("{dtype} is no type for weights")]
    NotWeights {
        /// Type of the row.
        dtype: DType,
    },
}

/// Decodes a row of `dtype` from `src` into as many `f32` as `dst` has.
///
/// # Errors
/// Where `src` isn't [`DType::row_bytes`] of `dst`'s length, and for `I32`.
pub fn decode_row(dtype: DType, src: &[u8], dst: &mut [f32]) -> Result<(), RowError> {
    check_lengths(dtype, dst.len(), src.len())?;
    match dtype {
        DType::F32 => decode_blocks::<F32, _>(src, dst),
        DType::F16 => decode_blocks::<F16, _>(src, dst),
        DType::BF16 => decode_blocks::<BF16, _>(src, dst),
        DType::Q4_0 => decode_blocks::<Q4_0, _>(src, dst),
        DType::Q4_1 => decode_blocks::<Q4_1, _>(src, dst),
        DType::Q5_0 => decode_blocks::<Q5_0, _>(src, dst),
        DType::Q5_1 => decode_blocks::<Q5_1, _>(src, dst),
        DType::Q8_0 => decode_blocks::<Q8_0, _>(src, dst),
        DType::Q4K => decode_blocks::<Q4K, _>(src, dst),
        DType::Q5K => decode_blocks::<Q5K, _>(src, dst),
        DType::Q6K => decode_blocks::<Q6K, _>(src, dst),
        DType::I32 => return Err(RowError::NotWeights { dtype }),
    }
    Ok(())
}

/// Encodes the `f32` of `src` as a row of `dtype` that fills `dst`.
///
/// # Errors
/// Where `dst` isn't [`DType::row_bytes`] of `src`'s length, and for `I32`.
pub fn encode_row(dtype: DType, src: &[f32], dst: &mut [u8]) -> Result<(), RowError> {
    check_lengths(dtype, src.len(), dst.len())?;
    match dtype {
        DType::F32 => encode_blocks::<F32, _>(src, dst),
        DType::F16 => encode_blocks::<F16, _>(src, dst),
        DType::BF16 => encode_blocks::<BF16, _>(src, dst),
        DType::Q4_0 => encode_blocks::<Q4_0, _>(src, dst),
        DType::Q4_1 => encode_blocks::<Q4_1, _>(src, dst),
        DType::Q5_0 => encode_blocks::<Q5_0, _>(src, dst),
        DType::Q5_1 => encode_blocks::<Q5_1, _>(src, dst),
        DType::Q8_0 => encode_blocks::<Q8_0, _>(src, dst),
        DType::Q4K => encode_blocks::<Q4K, _>(src, dst),
        DType::Q5K => encode_blocks::<Q5K, _>(src, dst),
        DType::Q6K => encode_blocks::<Q6K, _>(src, dst),
        DType::I32 => return Err(RowError::NotWeights { dtype }),
    }
    Ok(())
}

fn check_lengths(dtype: DType, elements: usize, bytes: usize) -> Result<(), RowError> {
    let found = Bytes::from(bytes);
    if dtype.row_bytes(elements) == Some(found) {
        return Ok(());
    }
    Err(RowError::Length { dtype, elements, found })
}

fn decode_blocks<B: Block<N>, const N: usize>(src: &[u8], dst: &mut [f32]) {
    let blocks: &[B] = cast::blocks(src).unwrap_or_default();
    for (block, values) in blocks.iter().zip(dst.as_chunks_mut::<N>().0) {
        block.decode(values);
    }
}

fn encode_blocks<B: Block<N>, const N: usize>(src: &[f32], dst: &mut [u8]) {
    let blocks: &mut [B] = cast::blocks_mut(dst).unwrap_or_default();
    for (block, values) in blocks.iter_mut().zip(src.as_chunks::<N>().0) {
        *block = B::encode(values);
    }
}
