//! Whatever the metadata says, a file is a model whose graphs hold together or is refused; it never panics.
#![allow(clippy::unwrap_used)]

mod common;

use common::TinyModel;
use minfer_gguf::OwnedValue;
use minfer_tensor::DType;
use proptest::prelude::*;

const KEYS: [&str; 20] = [
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.layer_norm_rms_epsilon",
    "attention.scale",
    "attention.causal",
    "attention.sliding_window",
    "attention.sliding_window_pattern",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.freq_base_swa",
    "rope.scaling.type",
    "rope.scaling.factor",
    "final_logit_softcapping",
    "expert_count",
];

fn value() -> impl Strategy<Value = OwnedValue> {
    let small = || 0u32..70;
    prop_oneof![
        4 => small().prop_map(OwnedValue::from),
        2 => prop::collection::vec(small(), 0..4).prop_map(OwnedValue::from),
        1 => any::<u64>().prop_map(OwnedValue::from),
        1 => any::<i32>().prop_map(OwnedValue::from),
        1 => any::<f32>().prop_map(OwnedValue::from),
        1 => any::<bool>().prop_map(OwnedValue::from),
        1 => prop_oneof!["none", "linear", "yarn", "\\PC{0,8}"].prop_map(OwnedValue::from),
    ]
}

proptest! {
    #[test]
    fn changed_metadata_is_refused_or_makes_graphs(
        family in 0..minfer_models::FAMILIES.len(),
        changes in prop::collection::vec((0..KEYS.len(), value()), 1..4),
    ) {
        let mut file = TinyModel::new(minfer_models::FAMILIES[family].name);
        for (key, value) in changes {
            file.set(KEYS[key], value);
        }
        match file.load() {
            Ok(model) => {
                let states = model.states(16, DType::F32).unwrap();
                model.build(4, 2, &states).unwrap();
            }
            Err(error) => prop_assert!(!error.to_string().contains(char::is_control), "{error}"),
        }
    }
}
