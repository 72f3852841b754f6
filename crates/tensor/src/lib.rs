//! Element types, shapes and block formats of quantized weights.
