//! Any vocabulary is refused or encodes any text, into ids that it has.
#![no_main]

use libfuzzer_sys::fuzz_target;
use minfer_text::{Specials, Tokenizer, TokenizerModel, VocabSource};

// Three parts with a NUL between them: tokens and merges, one on each line, and the text.
fuzz_target!(|input: (bool, &str)| {
    let (spm, input) = input;
    let mut parts = input.splitn(3, '\0');
    let mut lines = || parts.next().unwrap_or_default().lines().collect::<Vec<_>>();
    let (tokens, merges) = (lines(), lines());
    let text = parts.next().unwrap_or_default();
    let source = VocabSource {
        model: if spm { TokenizerModel::Spm } else { TokenizerModel::Bpe },
        scores: spm.then(|| (0..tokens.len()).map(|id| -(id as f32)).collect()),
        merges: (!spm).then_some(merges),
        tokens,
        ..VocabSource::default()
    };
    let Ok(tokenizer) = Tokenizer::new(&source) else { return };
    for id in tokenizer.encode(text, Specials::ALL).unwrap_or_default() {
        assert!((id as usize) < tokenizer.n_vocab());
        let _ = tokenizer.token_bytes(id);
    }
});
