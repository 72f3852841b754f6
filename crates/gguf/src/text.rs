//! Text that comes from files: maybe not UTF-8, and never printed as it is.

use std::fmt;
use std::str::Utf8Error;

/// Characters of a name that a message shows.
const SHOWN: usize = 100;

/// A string as a file has it: bytes that are UTF-8 only by convention.
///
/// Displays quoted and escaped, fit for a message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Text<'a>(pub(crate) &'a [u8]);

impl<'a> Text<'a> {
    /// The bytes.
    #[must_use]
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// The text, where it is UTF-8.
    ///
    /// # Errors
    /// Where it isn't.
    pub const fn to_str(self) -> Result<&'a str, Utf8Error> {
        std::str::from_utf8(self.0)
    }
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A character has at most four bytes, so what is cut here isn't shown.
        let bytes = &self.0[..self.0.len().min(4 * SHOWN + 4)];
        f.write_str(&quote(&String::from_utf8_lossy(bytes)))
    }
}

impl fmt::Debug for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Text from a file for a message: in quotes, control characters escaped, cut after 100 characters.
#[must_use]
pub fn quote(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}…", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_never_reach_a_message() {
        assert_eq!(quote("a\u{1b}]0;x\u{7}\n"), r#""a\u{1b}]0;x\u{7}\n""#);
        assert_eq!(Text(b"a\xff\x1b").to_string(), "\"a\u{fffd}\\u{1b}\"");
    }

    #[test]
    fn long_names_are_cut() {
        assert_eq!(quote(&"ä".repeat(5000)).chars().count(), SHOWN + 3);
        assert_eq!(Text(&[b'x'; 5000]).to_string().len(), SHOWN + 2 + '…'.len_utf8());
    }
}
