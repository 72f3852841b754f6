//! The tokens that end a generation.

use super::special::Specials;
use super::vocab::Vocab;
use super::{SpecialIds, TokenId};

/// Ends of turns and messages by their text, for files that name only EOS.
const TEXTS: [&str; 17] = [
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_turn>",
    "<end_of_utterance>",
    "<eos>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<｜end▁of▁sentence｜>",
    "<turn|>",
];

/// The ids at which a generation ends, sorted.
pub(crate) fn tokens(vocab: &Vocab, specials: &Specials, ids: &SpecialIds) -> Vec<TokenId> {
    let by_text = |text: &str| specials.exact(vocab, text.as_bytes()).or_else(|| vocab.find(text.as_bytes()));
    let mut found: Vec<(&str, TokenId)> =
        TEXTS.iter().filter_map(|&text| Some((text, by_text(text)?))).collect();
    // Where calls and returns have their own ends, <|end|> only separates the parts of an answer.
    let has = |text| found.iter().any(|&(t, _)| t == text);
    if has("<|return|>") && has("<|call|>") {
        found.retain(|&(text, _)| text != "<|end|>");
    }
    let mut end = Vec::with_capacity(found.len() + 3);
    end.extend([ids.eos, ids.eot, ids.eom].into_iter().flatten());
    end.extend(found.into_iter().map(|(_, id)| id));
    end.sort_unstable();
    end.dedup();
    end
}

/// The most heap that the list takes, in bytes.
pub(crate) fn heap_bound() -> usize {
    (TEXTS.len() + 3) * size_of::<TokenId>()
}
