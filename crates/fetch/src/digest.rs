//! SHA-256 digests as values.

use sha2::{Digest as _, Sha256};
use std::fmt;
use std::io::{self, Read};

/// The SHA-256 of a file's content.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of these bytes.
    pub fn of(bytes: &[u8]) -> Digest {
        let mut hasher = Hasher::default();
        hasher.update(bytes);
        hasher.finish()
    }

    /// Reads 64 hexadecimal digits; `None` if `text` is anything else.
    pub const fn parse(text: &str) -> Option<Digest> {
        let text = text.as_bytes();
        if text.len() != 64 {
            return None;
        }
        let mut bytes = [0; 32];
        let mut i = 0;
        while i < 32 {
            let (Some(high), Some(low)) = (nibble(text[2 * i]), nibble(text[2 * i + 1])) else { return None };
            bytes[i] = high << 4 | low;
            i += 1;
        }
        Some(Digest(bytes))
    }

    /// Reads a digest that is part of the program.
    ///
    /// # Panics
    /// If `text` isn't 64 hexadecimal digits: at compile time, in the constants this is for.
    pub(crate) const fn pinned(text: &str) -> Digest {
        match Digest::parse(text) {
            Some(digest) => digest,
            None => panic!("not a SHA-256"),
        }
    }
}

const fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A digest in the making, together with the number of bytes it has seen.
#[derive(Clone, Default)]
pub(crate) struct Hasher {
    state: Sha256,
    bytes: u64,
}

impl Hasher {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.state.update(bytes);
        self.bytes += bytes.len() as u64;
    }

    /// Reads `source` to its end.
    pub(crate) fn update_from(&mut self, source: &mut impl Read) -> io::Result<()> {
        let mut buffer = vec![0; 128 << 10];
        loop {
            match source.read(&mut buffer)? {
                0 => return Ok(()),
                n => self.update(&buffer[..n]),
            }
        }
    }

    /// The number of bytes seen so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn finish(self) -> Digest {
        Digest(self.state.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_of_abc_is_that_of_fips_180() {
        let mut hasher = Hasher::default();
        hasher.update_from(&mut &b"abc"[..]).unwrap();
        assert_eq!(hasher.bytes(), 3);
        let text = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hasher.finish(), Digest::of(b"abc"));
        assert_eq!(Some(Digest::of(b"abc")), Digest::parse(text));
        assert_eq!(Digest::parse(text).unwrap().to_string(), text);
    }

    #[test]
    fn anything_but_64_hex_digits_is_no_digest() {
        for text in ["", "ba78", &"g".repeat(64), &"a".repeat(63), &"a".repeat(65), &"é".repeat(32)] {
            assert_eq!(Digest::parse(text), None, "{text}");
        }
    }
}
