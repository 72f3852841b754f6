//! Element types and their identifiers in GGML files.

use std::fmt;

use crate::Bytes;
use crate::quant;

/// How the elements of a tensor are stored.
///
/// Quantized types store a row as whole blocks; the layout of each is in its file under [`crate::quant`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DType {
    /// IEEE 754 single precision.
    F32,
    /// IEEE 754 half precision.
    F16,
    /// The upper half of a single.
    BF16,
    /// Signed 32-bit integer; positions and token ids, never weights.
    I32,
    /// 4 bits, a scale for 32.
    Q4_0,
    /// 4 bits, a scale and a minimum for 32.
    Q4_1,
    /// 5 bits, a scale for 32.
    Q5_0,
    /// 5 bits, a scale and a minimum for 32.
    Q5_1,
    /// 8 bits, a scale for 32.
    Q8_0,
    /// 4 bits, 6-bit scales and minima for 32, in super-blocks of 256.
    Q4K,
    /// 5 bits, 6-bit scales and minima for 32, in super-blocks of 256.
    Q5K,
    /// 6 bits, 8-bit scales for 16, in super-blocks of 256.
    Q6K,
}

impl DType {
    /// Every type.
    pub const ALL: [Self; 12] = [
        Self::F32,
        Self::F16,
        Self::BF16,
        Self::I32,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q8_0,
        Self::Q4K,
        Self::Q5K,
        Self::Q6K,
    ];

    /// The name in messages, as the field writes it: `Q4_K`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::BF16 => "BF16",
            Self::I32 => "I32",
            Self::Q4_0 => "Q4_0",
            Self::Q4_1 => "Q4_1",
            Self::Q5_0 => "Q5_0",
            Self::Q5_1 => "Q5_1",
            Self::Q8_0 => "Q8_0",
            Self::Q4K => "Q4_K",
            Self::Q5K => "Q5_K",
            Self::Q6K => "Q6_K",
        }
    }

    /// Elements in a block: 1 for plain types.
    #[must_use]
    pub const fn block_len(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::BF16 | Self::I32 => 1,
            Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 | Self::Q8_0 => 32,
            Self::Q4K | Self::Q5K | Self::Q6K => 256,
        }
    }

    /// Bytes in a block.
    #[must_use]
    pub const fn block_bytes(self) -> Bytes {
        match self {
            Self::F32 | Self::I32 => Bytes::new(4),
            Self::F16 | Self::BF16 => Bytes::new(2),
            Self::Q4_0 => Bytes::size_of::<quant::Q4_0>(),
            Self::Q4_1 => Bytes::size_of::<quant::Q4_1>(),
            Self::Q5_0 => Bytes::size_of::<quant::Q5_0>(),
            Self::Q5_1 => Bytes::size_of::<quant::Q5_1>(),
            Self::Q8_0 => Bytes::size_of::<quant::Q8_0>(),
            Self::Q4K => Bytes::size_of::<quant::Q4K>(),
            Self::Q5K => Bytes::size_of::<quant::Q5K>(),
            Self::Q6K => Bytes::size_of::<quant::Q6K>(),
        }
    }

    /// Bytes of a row of `elements`; `None` where that is no whole number of blocks, or on overflow.
    #[must_use]
    pub const fn row_bytes(self, elements: usize) -> Option<Bytes> {
        if !elements.is_multiple_of(self.block_len()) {
            return None;
        }
        self.block_bytes().checked_mul((elements / self.block_len()) as u64)
    }

    /// Whether elements share scales in blocks.
    #[must_use]
    pub const fn is_quantized(self) -> bool {
        self.block_len() > 1
    }

    /// The number that GGML files use for this type (`enum ggml_type` of `ggml.h`).
    #[must_use]
    pub const fn ggml_id(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::Q4_0 => 2,
            Self::Q4_1 => 3,
            Self::Q5_0 => 6,
            Self::Q5_1 => 7,
            Self::Q8_0 => 8,
            Self::Q4K => 12,
            Self::Q5K => 13,
            Self::Q6K => 14,
            Self::I32 => 26,
            Self::BF16 => 30,
        }
    }

    /// The type that GGML files give this number; `None` for unknown and for unsupported types, whose name
    /// [`ggml_type_name`] may know.
    #[must_use]
    pub fn from_ggml(id: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.ggml_id() == id)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The name of any GGML type, supported here or not; `None` for a number that was never given out.
#[must_use]
pub const fn ggml_type_name(id: u32) -> Option<&'static str> {
    const NAMES: [&str; 41] = [
        "F32",
        "F16",
        "Q4_0",
        "Q4_1",
        "Q4_2",
        "Q4_3",
        "Q5_0",
        "Q5_1",
        "Q8_0",
        "Q8_1",
        "Q2_K",
        "Q3_K",
        "Q4_K",
        "Q5_K",
        "Q6_K",
        "Q8_K",
        "IQ2_XXS",
        "IQ2_XS",
        "IQ3_XXS",
        "IQ1_S",
        "IQ4_NL",
        "IQ3_S",
        "IQ2_S",
        "IQ4_XS",
        "I8",
        "I16",
        "I32",
        "I64",
        "F64",
        "IQ1_M",
        "BF16",
        "Q4_0_4_4",
        "Q4_0_4_8",
        "Q4_0_8_8",
        "TQ1_0",
        "TQ2_0",
        "IQ4_NL_4_4",
        "IQ4_NL_4_8",
        "IQ4_NL_8_8",
        "MXFP4",
        "NVFP4",
    ];
    if (id as usize) < NAMES.len() { Some(NAMES[id as usize]) } else { None }
}

/// Whether GGML gave this number out once and took the type back, so that no current program writes it.
#[must_use]
pub const fn ggml_type_removed(id: u32) -> bool {
    matches!(id, 4 | 5 | 31..=33 | 36..=38)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ggml_ids_round_trip_and_agree_with_the_names() {
        for dtype in DType::ALL {
            assert_eq!(DType::from_ggml(dtype.ggml_id()), Some(dtype));
            assert_eq!(ggml_type_name(dtype.ggml_id()), Some(dtype.name()));
            assert!(!ggml_type_removed(dtype.ggml_id()));
        }
        assert_eq!(DType::from_ggml(36), None);
        assert!(ggml_type_removed(36));
        assert_eq!(ggml_type_name(41), None);
        assert_eq!(ggml_type_name(u32::MAX), None);
    }

    #[test]
    fn rows_are_whole_blocks() {
        assert_eq!(DType::Q4K.row_bytes(512), Some(Bytes::new(288)));
        assert_eq!(DType::Q4K.row_bytes(64), None);
        assert_eq!(DType::F16.row_bytes(3), Some(Bytes::new(6)));
        assert_eq!(DType::F32.row_bytes(usize::MAX), None);
        assert_eq!(DType::Q8_0.to_string(), "Q8_0");
    }
}
