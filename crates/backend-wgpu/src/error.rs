//! Errors in the words of the backend trait. Each names the adapter.

use minfer_graph::{BackendError, BufId, NodeId, Op};
use minfer_tensor::{Bytes, DType};

/// The name in messages and reports.
pub(crate) const NAME: &str = "wgpu";

/// The device, or the driver below it, failed.
pub(crate) fn device(adapter: &str, what: &str) -> BackendError {
    BackendError::Device { backend: NAME.to_owned(), what: format!("{adapter}: {what}") }
}

/// The driver has no memory for a buffer.
pub(crate) fn out_of_memory(adapter: &str, requested: Bytes, reason: &str) -> BackendError {
    let reason = format!("{adapter}: {reason}");
    BackendError::OutOfMemory { backend: NAME.to_owned(), requested, reason }
}

/// An access beyond a buffer's bytes.
pub(crate) fn outside(buffer: BufId, expected: Bytes, found: Bytes) -> BackendError {
    BackendError::Window { backend: NAME.to_owned(), buffer, expected, found }
}

/// A segment that doesn't hold together: a fault of whoever placed it.
pub(crate) fn refused(id: NodeId, what: &str) -> BackendError {
    BackendError::Device { backend: NAME.to_owned(), what: format!("{id} {what}") }
}

/// An operation without a kernel for its operand.
pub(crate) fn unsupported(op: &Op, dtype: DType) -> BackendError {
    BackendError::Unsupported { backend: NAME.to_owned(), op: op.name(), dtype }
}

/// A driver's message on one line, without control characters.
pub(crate) fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").escape_debug().to_string()
}
