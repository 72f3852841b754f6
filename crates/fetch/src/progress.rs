//! What a caller may show while a model is fetched.

/// Told about every transfer, in order: `begin`, any number of `advance`, `end`.
///
/// A transfer that is tried again begins again. `()` shows nothing.
pub trait Progress {
    /// A transfer of `what` begins; `total` is its size in bytes, where it is known.
    fn begin(&mut self, what: &str, total: Option<u64>);
    /// `done` bytes of the transfer are on disk.
    fn advance(&mut self, done: u64);
    /// The transfer is over, for better or worse.
    fn end(&mut self);
    /// One line worth telling the user: a retry, a fallback, a damaged file.
    fn note(&mut self, text: &str);
}

impl Progress for () {
    fn begin(&mut self, _what: &str, _total: Option<u64>) {}
    fn advance(&mut self, _done: u64) {}
    fn end(&mut self) {}
    fn note(&mut self, _text: &str) {}
}
