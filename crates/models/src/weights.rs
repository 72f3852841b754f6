//! The weight table: every tensor that the model needs, found and checked.

use minfer_gguf::{GgufTensorInfo, Index};
use minfer_graph::{Shape, WeightDecl, WeightId};
use minfer_tensor::DType;

use crate::error::ModelError;

type Result<T> = std::result::Result<T, ModelError>;

/// Collects the weights of a model; a weight's id is its position.
pub(crate) struct WeightTable<'a> {
    index: &'a Index,
    decls: Vec<WeightDecl>,
}

impl<'a> WeightTable<'a> {
    pub(crate) fn new(index: &'a Index) -> Self {
        Self { index, decls: Vec::new() }
    }

    /// All weights, by id.
    pub(crate) fn finish(self) -> Vec<WeightDecl> {
        self.decls
    }

    /// Whether the file has a tensor.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.index.tensor(name).is_some()
    }

    /// A matrix that is multiplied, of `n_out` rows of `n_in` elements, kept in the file's element type.
    pub(crate) fn matrix(&mut self, name: &str, n_out: usize, n_in: usize) -> Result<WeightId> {
        self.table(name, n_out, n_in, true)
    }

    /// A matrix whose rows are looked up; `multiplied` says whether it is multiplied as well.
    pub(crate) fn table(
        &mut self,
        name: &str,
        n_out: usize,
        n_in: usize,
        multiplied: bool,
    ) -> Result<WeightId> {
        let tensor = self.find(name, n_in, n_out)?;
        if tensor.dtype == DType::I32 {
            return Err(wrong_type(tensor, "floating-point or quantized elements"));
        }
        let dtype = tensor.dtype;
        Ok(self.push(name, dtype, Shape::new(n_out, n_in), multiplied))
    }

    /// One row of `n` elements. Whatever the file has, it is declared as F32, and the loader converts.
    pub(crate) fn vector(&mut self, name: &str, n: usize) -> Result<WeightId> {
        let tensor = self.find(name, n, 1)?;
        if !matches!(tensor.dtype, DType::F32 | DType::F16 | DType::BF16) {
            return Err(wrong_type(tensor, "F32, F16 or BF16"));
        }
        Ok(self.push(name, DType::F32, Shape::new(1, n), false))
    }

    /// As [`vector`](Self::vector), of a tensor that the file need not have.
    pub(crate) fn optional_vector(&mut self, name: &str, n: usize) -> Result<Option<WeightId>> {
        self.has(name).then(|| self.vector(name, n)).transpose()
    }

    /// The error of a tensor of `rows` rows of `row` elements that isn't there.
    pub(crate) fn missing(&self, name: &str, row: usize, rows: usize) -> ModelError {
        ModelError::MissingTensor { name: name.to_owned(), expected: dims(row, rows) }
    }

    fn find(&self, name: &str, row: usize, rows: usize) -> Result<&'a GgufTensorInfo> {
        let tensor = self.index.tensor(name).ok_or_else(|| self.missing(name, row, rows))?;
        if tensor.shape.ne() != [row, rows, 1, 1] {
            let found = tensor.shape.to_string();
            return Err(ModelError::TensorShape { name: name.to_owned(), found, expected: dims(row, rows) });
        }
        Ok(tensor)
    }

    fn push(&mut self, name: &str, dtype: DType, shape: Shape, multiplied: bool) -> WeightId {
        let id = WeightId::new(self.decls.len());
        self.decls.push(WeightDecl { name: name.to_owned(), dtype, shape, multiplied });
        id
    }
}

/// Dimensions as messages show them, row length first.
fn dims(row: usize, rows: usize) -> String {
    if rows == 1 { row.to_string() } else { format!("{row} x {rows}") }
}

fn wrong_type(tensor: &GgufTensorInfo, expected: &'static str) -> ModelError {
    ModelError::TensorType { name: tensor.name.clone(), found: tensor.dtype, expected }
}
