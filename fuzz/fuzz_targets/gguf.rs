//! Any bytes are a valid file or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use minfer_gguf::Index;

fuzz_target!(|bytes: &[u8]| {
    if let Err(error) = Index::from_bytes(bytes.to_vec()) {
        let message = error.to_string();
        assert!(!message.is_empty() && !message.contains('\x1b'), "{message:?}");
    }
});
