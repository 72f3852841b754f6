//! Model families: configuration and graphs from GGUF metadata.
