//! Streams give whole characters, and stop where they are told, however tokens cut them.

#![allow(clippy::unwrap_used)]

use minfer_text::{Detokenizer, StreamState};
use proptest::prelude::*;

fn stream(stops: &[&str], pieces: &[&[u8]]) -> (String, StreamState) {
    let mut detokenizer = Detokenizer::new(stops.iter().map(|&stop| stop.to_owned()));
    let mut out = String::new();
    for piece in pieces {
        detokenizer.push(piece, &mut out);
    }
    let state = detokenizer.finish(&mut out);
    (out, state)
}

#[test]
fn a_character_waits_for_its_bytes() {
    let mut detokenizer = Detokenizer::new([]);
    let mut out = String::new();
    detokenizer.push(b"a\xF0\x9F", &mut out);
    assert_eq!(out, "a");
    detokenizer.push(b"\x98\x80b", &mut out);
    assert_eq!(out, "a😀b");
}

#[test]
fn bytes_that_are_no_text_are_replaced() {
    assert_eq!(stream(&[], &[b"a\xFFb\xE2\x82"]).0, "a\u{FFFD}b\u{FFFD}");
    assert_eq!(stream(&[], &[b"\xE2", b"x"]).0, "\u{FFFD}x");
}

#[test]
fn a_stop_string_across_tokens() {
    assert_eq!(stream(&["</s>"], &[b"one</", b"s", b">two"]), ("one".into(), StreamState::Stopped(0)));
    assert_eq!(stream(&["</s>"], &[b"one</", b"st"]), ("one</st".into(), StreamState::Open));
    assert_eq!(stream(&["zz", "b"], &[b"abz"]), ("a".into(), StreamState::Stopped(1)));
    assert_eq!(stream(&["aab"], &[b"a", b"a", b"a", b"b"]), ("a".into(), StreamState::Stopped(0)));
    assert_eq!(stream(&["", "é"], &[b"x\xC3", b"\xA9"]), ("x".into(), StreamState::Stopped(1)));
}

#[test]
fn what_may_be_a_stop_is_held_back() {
    let mut detokenizer = Detokenizer::new(["END".to_owned()]);
    let mut out = String::new();
    detokenizer.push(b"the E", &mut out);
    assert_eq!(out, "the ");
    detokenizer.push(b"X", &mut out);
    assert_eq!(out, "the EX");
}

proptest! {
    #[test]
    fn cuts_dont_matter(bytes in prop::collection::vec(any::<u8>(), 0..60), cut in 1usize..7, stop in "[a-c]{1,3}") {
        let whole = stream(&[&stop], &[&bytes]);
        let pieces: Vec<&[u8]> = bytes.chunks(cut).collect();
        prop_assert_eq!(stream(&[&stop], &pieces), whole.clone());
        let text = String::from_utf8_lossy(&bytes);
        let expected = text.find(&stop).map_or(&*text, |at| &text[..at]);
        prop_assert_eq!(whole.0, expected);
    }
}
