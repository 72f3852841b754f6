//! The GGUF file format: index, metadata, mapping, writer.
