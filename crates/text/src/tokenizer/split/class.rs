//! The classes of characters that the rules tell apart.

use unicode_general_category::{GeneralCategory as G, get_general_category};

/// A set of classes; a character is in none or several.
#[derive(Clone, Copy)]
pub(super) struct Class(u8);

impl Class {
    /// `\p{L}`
    pub(super) const LETTER: Self = Self(1);
    /// `\p{N}`
    pub(super) const NUMBER: Self = Self(2);
    /// `\s`
    pub(super) const SPACE: Self = Self(4);
    /// `\p{M}`
    pub(super) const MARK: Self = Self(8);
    /// `\p{P}`
    pub(super) const PUNCTUATION: Self = Self(16);
    /// `\p{S}`
    pub(super) const SYMBOL: Self = Self(32);
    /// `[\p{Lu}\p{Lt}]`
    pub(super) const UPPER: Self = Self(64);
    /// `\p{Ll}`
    pub(super) const LOWER: Self = Self(128);

    pub(super) const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether the two sets share a class.
    pub(super) const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The classes of a character.
    #[inline]
    pub(super) fn of(c: char) -> Self {
        match ASCII.get(c as usize) {
            Some(&class) => class,
            None => Self::look_up(c),
        }
    }

    fn look_up(c: char) -> Self {
        let class = match get_general_category(c) {
            G::UppercaseLetter | G::TitlecaseLetter => Self::LETTER.or(Self::UPPER),
            G::LowercaseLetter => Self::LETTER.or(Self::LOWER),
            G::ModifierLetter | G::OtherLetter => Self::LETTER,
            G::DecimalNumber | G::LetterNumber | G::OtherNumber => Self::NUMBER,
            G::NonspacingMark | G::SpacingMark | G::EnclosingMark => Self::MARK,
            G::ConnectorPunctuation
            | G::DashPunctuation
            | G::OpenPunctuation
            | G::ClosePunctuation
            | G::InitialPunctuation
            | G::FinalPunctuation
            | G::OtherPunctuation => Self::PUNCTUATION,
            G::MathSymbol | G::CurrencySymbol | G::ModifierSymbol | G::OtherSymbol => Self::SYMBOL,
            _ => Self(0),
        };
        if c.is_whitespace() { class.or(Self::SPACE) } else { class }
    }
}

const ASCII: [Class; 128] = ascii();

const fn ascii() -> [Class; 128] {
    let mut classes = [Class(0); 128];
    let mut c = 0;
    while c < 128 {
        classes[c as usize] = match c {
            b'A'..=b'Z' => Class::LETTER.or(Class::UPPER),
            b'a'..=b'z' => Class::LETTER.or(Class::LOWER),
            b'0'..=b'9' => Class::NUMBER,
            b'\t'..=b'\r' | b' ' => Class::SPACE,
            b'$' | b'+' | b'<'..=b'>' | b'^' | b'`' | b'|' | b'~' => Class::SYMBOL,
            b'!'..=b'~' => Class::PUNCTUATION,
            _ => Class(0),
        };
        c += 1;
    }
    classes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ascii_table_agrees_with_unicode() {
        for c in '\0'..'\u{80}' {
            assert_eq!(Class::of(c).0, Class::look_up(c).0, "{c:?}");
        }
    }
}
