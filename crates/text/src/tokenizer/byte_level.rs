//! The alphabet of byte-level BPE: every byte as one printable character.
//!
//! Bytes that Latin-1 prints stand for themselves; the other 68 follow from U+0100 on, in order.

/// One past the last character of the alphabet.
const END: usize = 0x100 + 68;

/// By character: its byte, or -1 outside the alphabet.
const BYTES: [i16; END] = table();

const fn table() -> [i16; END] {
    let mut bytes = [-1; END];
    let (mut byte, mut next) = (0, 0x100);
    while byte < 256 {
        let printable = matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF);
        if printable {
            bytes[byte] = byte as i16;
        } else {
            bytes[next] = byte as i16;
            next += 1;
        }
        byte += 1;
    }
    bytes
}

/// Appends the bytes that `text` spells; a character outside the alphabet stands for itself.
pub(crate) fn decode(text: &str, out: &mut Vec<u8>) {
    let mut rest = text;
    while !rest.is_empty() {
        // ASCII stands for itself.
        let ascii = rest.bytes().position(|byte| !byte.is_ascii()).unwrap_or(rest.len());
        out.extend_from_slice(&rest.as_bytes()[..ascii]);
        rest = &rest[ascii..];
        let Some(c) = rest.chars().next() else { break };
        let (spelled, after) = rest.split_at(c.len_utf8());
        match BYTES.get(c as usize) {
            Some(&byte) if byte >= 0 => out.push(byte as u8),
            _ => out.extend_from_slice(spelled.as_bytes()),
        }
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alphabet_spells_every_byte_once() {
        let mut bytes: Vec<i16> = BYTES.into_iter().filter(|&b| b >= 0).collect();
        bytes.sort_unstable();
        assert_eq!(bytes, (0..256).collect::<Vec<i16>>());
    }

    #[test]
    fn space_newline_and_foreign_characters() {
        let mut out = Vec::new();
        decode("ĠĊé｜", &mut out);
        assert_eq!(out, [b" \n\xE9".as_slice(), "｜".as_bytes()].concat());
    }
}
