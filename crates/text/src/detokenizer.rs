//! Token bytes to text while they arrive: whole characters only, up to a stop string.

use minfer_tensor::Bytes;

/// What a stream has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamState {
    /// More may follow.
    Open,
    /// The text reached the stop string with this index; what follows is ignored.
    Stopped(usize),
}

/// Turns the bytes of tokens into text that can be shown at once.
///
/// A token may end within a character, and a stop string may span tokens: the detokenizer holds back what isn't yet
/// certain. Bytes that can't become UTF-8 turn into U+FFFD, one for each ill-formed sequence.
#[derive(Debug, Clone)]
pub struct Detokenizer {
    stops: Vec<String>,
    /// The beginning of a character.
    bytes: Vec<u8>,
    /// Text that may be the beginning of a stop string.
    held: String,
    state: StreamState,
}

impl Detokenizer {
    /// A stream that ends at the first of the `stops`; empty ones are ignored.
    ///
    /// Allocates its buffers here: pieces of up to some hundred bytes need no more later.
    pub fn new(stops: impl IntoIterator<Item = String>) -> Self {
        const PIECE: usize = 512;
        let stops: Vec<String> = stops.into_iter().collect();
        let longest = stops.iter().map(String::len).max().unwrap_or(0);
        Self {
            stops,
            bytes: Vec::with_capacity(PIECE),
            held: String::with_capacity(PIECE + longest),
            state: StreamState::Open,
        }
    }

    /// Takes the bytes of the next token and appends to `out` the text that is certain now.
    ///
    /// At a stop string, `out` gets the text before it, but not the string itself.
    pub fn push(&mut self, bytes: &[u8], out: &mut String) -> StreamState {
        if self.state == StreamState::Open {
            self.bytes.extend_from_slice(bytes);
            self.decode();
            self.release(out);
        }
        self.state
    }

    /// Ends the stream: appends what was held back. The detokenizer is then as new.
    pub fn finish(&mut self, out: &mut String) -> StreamState {
        let state = self.state;
        if state == StreamState::Open {
            if !self.bytes.is_empty() {
                self.held.push(char::REPLACEMENT_CHARACTER);
            }
            out.push_str(&self.held);
        }
        self.bytes.clear();
        self.held.clear();
        self.state = StreamState::Open;
        state
    }

    /// Moves the whole characters from the bytes to the held text.
    fn decode(&mut self) {
        let mut done = 0;
        for chunk in self.bytes.utf8_chunks() {
            self.held.push_str(chunk.valid());
            done += chunk.valid().len();
            let invalid = chunk.invalid();
            let rest = self.bytes.len() - done;
            if rest == invalid.len() && is_unfinished(invalid) {
                break;
            }
            if !invalid.is_empty() {
                self.held.push(char::REPLACEMENT_CHARACTER);
                done += invalid.len();
            }
        }
        self.bytes.drain(..done);
    }

    /// Moves the held text to `out`: up to a stop string, or but for what may become one.
    fn release(&mut self, out: &mut String) {
        let matches = self.stops.iter().enumerate().filter(|(_, stop)| !stop.is_empty());
        let found = matches.filter_map(|(i, stop)| Some((self.held.find(stop.as_str())?, i))).min();
        let certain = match found {
            Some((at, i)) => {
                self.state = StreamState::Stopped(i);
                at
            }
            None => self.held.len() - self.longest_beginning(),
        };
        out.push_str(&self.held[..certain]);
        self.held.drain(..certain);
    }

    /// The length of the longest end of the held text that begins a stop string.
    fn longest_beginning(&self) -> usize {
        let text = self.held.as_str();
        let longest_of = |stop: &String| {
            let lengths = (1..stop.len().min(text.len() + 1)).rev();
            lengths.into_iter().find(|&n| text.as_bytes().ends_with(&stop.as_bytes()[..n])).unwrap_or(0)
        };
        // A suffix that matches whole bytes of a string at its beginning begins at a character.
        self.stops.iter().map(longest_of).max().unwrap_or(0)
    }

    /// The heap that the detokenizer holds.
    pub fn heap_bytes(&self) -> Bytes {
        let stops = self.stops.capacity() * size_of::<String>()
            + self.stops.iter().map(String::capacity).sum::<usize>();
        Bytes::from(self.bytes.capacity() + self.held.capacity() + stops)
    }
}

/// Whether more bytes may make a character of these, which aren't valid UTF-8 as they stand.
fn is_unfinished(bytes: &[u8]) -> bool {
    match std::str::from_utf8(bytes) {
        Ok(_) => false,
        Err(error) => error.valid_up_to() == 0 && error.error_len().is_none(),
    }
}
