//! What the index knows of a tensor.

use std::ops::Range;

use minfer_tensor::{Bytes, DType, Shape, ShapeError, ggml_type_name};

use crate::error::{Kind, TensorProblem};
use crate::index::{Data, Part};

/// A tensor of a file: where its data is and what it means. All of it is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GgufTensorInfo {
    /// The name, unique in the model.
    pub name: String,
    /// The type of the elements, one that weights can have.
    pub dtype: DType,
    /// The dimensions, row length first; rows are whole blocks.
    pub shape: Shape,
    /// The file it is in, an index of [`crate::Index::parts`].
    pub part: usize,
    /// Where its data begins, in bytes from the start of that file.
    pub offset: u64,
    nbytes: Bytes,
}

impl GgufTensorInfo {
    /// Bytes of its data.
    #[must_use]
    pub const fn nbytes(&self) -> Bytes {
        self.nbytes
    }

    /// Where its data lies in the file.
    #[must_use]
    pub const fn range(&self) -> Range<u64> {
        // Its end was checked, so no overflow.
        self.offset..self.offset + self.nbytes.get()
    }
}

/// A tensor info as a file has it.
#[derive(Debug)]
pub(crate) struct RawInfo {
    pub(crate) name: String,
    pub(crate) dims: Vec<u64>,
    pub(crate) type_id: u32,
    pub(crate) offset: u64,
}

impl RawInfo {
    /// Checks the info against the part with this index.
    pub(crate) fn check(self, part: &Part, index: usize, data: Data) -> Result<GgufTensorInfo, Kind> {
        match self.try_check(part, data) {
            Ok((dtype, shape, offset, nbytes)) => {
                Ok(GgufTensorInfo { name: self.name, dtype, shape, part: index, offset, nbytes })
            }
            Err(problem) => Err(Kind::Tensor { name: self.name, problem }),
        }
    }

    fn try_check(&self, part: &Part, data: Data) -> Result<(DType, Shape, u64, Bytes), TensorProblem> {
        let dtype = self.dtype()?;
        let shape = self.shape()?;
        let row_len = shape.row_len();
        if !row_len.is_multiple_of(dtype.block_len()) {
            return Err(TensorProblem::PartialBlocks { dtype, row_len });
        }
        let nbytes = shape.nbytes(dtype).ok_or_else(|| self.impossible(ShapeError::Overflow))?;
        if !self.offset.is_multiple_of(part.alignment.into()) {
            return Err(TensorProblem::Misaligned { offset: self.offset, alignment: part.alignment });
        }
        let offset = self.offset.checked_add(part.data_start.get());
        let end = offset.and_then(|offset| offset.checked_add(nbytes.get()));
        match (offset, end) {
            (Some(offset), Some(end)) if data == Data::Optional || end <= part.len.get() => {
                Ok((dtype, shape, offset, nbytes))
            }
            _ => Err(TensorProblem::PastEnd { end, file_len: part.len }),
        }
    }

    fn dtype(&self) -> Result<DType, TensorProblem> {
        let id = self.type_id;
        match (DType::from_ggml(id), ggml_type_name(id)) {
            (Some(DType::I32), _) => Err(TensorProblem::NotWeights { dtype: DType::I32 }),
            (Some(dtype), _) => Ok(dtype),
            (None, Some(type_name)) => Err(TensorProblem::UnsupportedType { type_name, id }),
            (None, None) => Err(TensorProblem::UnknownType { id }),
        }
    }

    fn shape(&self) -> Result<Shape, TensorProblem> {
        let dims: Result<Vec<usize>, _> = self.dims.iter().map(|&dim| usize::try_from(dim)).collect();
        let dims = dims.map_err(|_| self.impossible(ShapeError::Overflow))?;
        Shape::new(&dims).map_err(|problem| self.impossible(problem))
    }

    fn impossible(&self, problem: ShapeError) -> TensorProblem {
        TensorProblem::Shape { dims: self.dims.clone(), problem }
    }
}
