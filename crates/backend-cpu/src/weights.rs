//! Registered weights, used where they lie.

use std::collections::BTreeMap;

use minfer_graph::{BackendError, WeightBytes, WeightCharge, WeightDecl, WeightId};
use minfer_tensor::{Bytes, DType};

use crate::spec::NAME;

/// A weight and the owner of its bytes.
#[derive(Clone, Debug)]
pub(crate) struct Weight {
    /// Its bytes.
    pub(crate) data: WeightBytes,
    charge: WeightCharge,
}

/// The weights of a session.
#[derive(Debug, Default)]
pub(crate) struct Weights(BTreeMap<WeightId, Weight>);

impl Weights {
    /// Takes a weight in; replaces one of the same id.
    ///
    /// # Errors
    /// If the bytes are not as many as declared, or not aligned for f32 or f16 arithmetic.
    pub(crate) fn insert(
        &mut self,
        id: WeightId,
        decl: &WeightDecl,
        data: WeightBytes,
        charge: WeightCharge,
    ) -> Result<(), BackendError> {
        let found = Bytes::from(data.as_slice().len());
        let expected = decl.shape.nbytes(decl.dtype).unwrap_or(Bytes::MAX);
        if found != expected {
            let (backend, name) = (NAME.to_owned(), decl.name.escape_debug().to_string());
            return Err(BackendError::Weight { backend, name, expected, found });
        }
        let address = data.as_slice().as_ptr().addr();
        if !address.is_multiple_of(element_align(decl.dtype)) {
            let name = decl.name.escape_debug();
            let what = format!(
                "{name}: {} weights at an address that is no multiple of {}",
                decl.dtype,
                element_align(decl.dtype)
            );
            return Err(BackendError::Device { backend: NAME.to_owned(), what });
        }
        self.0.insert(id, Weight { data, charge });
        Ok(())
    }

    /// A registered weight.
    pub(crate) fn get(&self, id: WeightId) -> Option<&Weight> {
        self.0.get(&id)
    }

    /// Bytes of all of them.
    pub(crate) fn bytes(&self) -> Bytes {
        self.0.values().map(|weight| weight.charge.total()).sum()
    }
}

/// What the address of an element must be a multiple of; blocks may lie anywhere.
pub(crate) fn element_align(dtype: DType) -> usize {
    match dtype {
        DType::F32 | DType::I32 => 4,
        DType::F16 | DType::BF16 => 2,
        _ => 1,
    }
}
