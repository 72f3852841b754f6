//! Where weights come from: pages of the file, or a converted copy.

use std::ops::Range;
use std::sync::Arc;

use minfer_gguf::{GgufTensorInfo, Mapping};
use minfer_graph::{WeightBytes, WeightDecl, WeightSource};
use minfer_tensor::{Bytes, DType, decode_row};

/// Pages of a mapped part of the model file.
struct MappedPart(Arc<Mapping>);

impl WeightSource for MappedPart {
    fn bytes(&self, range: Range<usize>) -> &[u8] {
        self.0.bytes(range.start as u64..range.end as u64).expect("tensors lie inside their part")
    }

    fn is_mapped(&self) -> bool {
        true
    }

    fn release(&self, range: Range<usize>) {
        self.0.release(range.start as u64..range.end as u64);
    }
}

/// A copy in another element type.
struct Converted(Vec<u8>);

impl WeightSource for Converted {
    fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.0[range]
    }

    fn is_mapped(&self) -> bool {
        false
    }
}

/// The bytes of a tensor in the element type that the graph declares: the mapped pages themselves where the two agree, else
/// a copy in f32 (norms and biases that a file holds in F16).
///
/// `None` if the tensor lies outside its part or can't be converted, which a validated index and model exclude.
pub(crate) fn weight_bytes(
    tensor: &GgufTensorInfo,
    decl: &WeightDecl,
    maps: &[Arc<Mapping>],
) -> Option<WeightBytes> {
    let map = maps.get(tensor.part)?;
    let start = tensor.offset;
    let range = start..start.checked_add(tensor.nbytes().get())?;
    let bytes = map.bytes(range.clone())?;
    if tensor.dtype == decl.dtype {
        let range = usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?;
        return Some(WeightBytes::new(Arc::new(MappedPart(Arc::clone(map))), range));
    }
    let copy = to_f32(tensor.dtype, bytes, decl)?;
    let range = 0..copy.len();
    Some(WeightBytes::new(Arc::new(Converted(copy)), range))
}

fn to_f32(dtype: DType, bytes: &[u8], decl: &WeightDecl) -> Option<Vec<u8>> {
    let mut values = vec![0f32; decl.shape.n_elements()?];
    decode_row(dtype, bytes, &mut values).ok()?;
    debug_assert_eq!(decl.shape.nbytes(DType::F32), Some(Bytes::of_slice(&values)));
    Some(values.iter().flat_map(|v| v.to_le_bytes()).collect())
}
