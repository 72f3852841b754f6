//! Loading, sessions, KV cache and decoding over any backend.
