//! Text to token ids and back, by the vocabulary of a GGUF file.

mod bpe;
mod byte_level;
mod end;
mod error;
mod index;
mod merge;
mod metadata;
mod slots;
mod source;
mod special;
mod split;
mod spm;
mod vocab;

use bpe::Bpe;
pub use error::Error;
use merge::Merger;
use minfer_tensor::Bytes;
pub use source::{SpecialIds, TokenizerModel, VocabSource};
use split::PreTokenizer;
use spm::Spm;
pub use vocab::TokenKind;
use vocab::Vocab;

use source::keys;

/// The id of a token: its place in the vocabulary.
pub type TokenId = u32;

/// What happens to special tokens when a text is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Specials {
    /// Whether `<|im_end|>` and the like in the text become their control tokens, or stay plain text.
    pub parse: bool,
    /// Whether BOS and EOS are added as the model says.
    pub add: bool,
}

impl Specials {
    /// Control tokens are parsed, BOS and EOS added as the model says: for a text that is the whole input.
    pub const ALL: Self = Self { parse: true, add: true };
    /// Control tokens are parsed, nothing is added: for a rendered chat template.
    pub const PARSE: Self = Self { parse: true, add: false };
    /// Everything is plain text: for what a user may write.
    pub const NONE: Self = Self { parse: false, add: false };
}

/// A vocabulary with the algorithm that encodes with it.
#[derive(Debug)]
pub struct Tokenizer {
    vocab: Vocab,
    algorithm: Algorithm,
    specials: special::Specials,
    ids: SpecialIds,
    end: Vec<TokenId>,
    add_bos: bool,
    add_eos: bool,
    /// Control tokens swallow the white space after them (Phi-3).
    strip_after_control: bool,
}

/// Runs both, at the same time if the system gives a thread.
fn both<A: Send, B>(beside: impl Fn() -> A + Sync, here: impl FnOnce() -> B) -> (A, B) {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("tokenizer".into()).spawn_scoped(scope, &beside);
        let here = here();
        let beside = match thread {
            Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Err(_) => beside(),
        };
        (beside, here)
    })
}

#[derive(Debug)]
enum Algorithm {
    Bpe(Box<Bpe>),
    Spm(Box<Spm>),
}

impl Tokenizer {
    /// Checks and indexes a vocabulary.
    ///
    /// # Errors
    ///
    /// If lists disagree, ids are beyond the vocabulary, or the pre-tokenizer isn't known; the message names the key.
    pub fn new(source: &VocabSource<'_>) -> Result<Self, Error> {
        source.check()?;
        let vocab = build_vocab(source)?;
        let (algorithm, add_bos) = match source.model {
            TokenizerModel::Bpe => {
                let split = pre_tokenizer(source)?;
                let merges = source.merges.as_deref().ok_or(Error::Missing {
                    key: keys::MERGES,
                    need: "byte-pair encoding needs its merges",
                })?;
                (Algorithm::Bpe(Box::new(Bpe::new(&vocab, &source.tokens, merges, split)?)), split.add_bos)
            }
            TokenizerModel::Spm => (Algorithm::Spm(Box::new(spm(&vocab, source)?)), true),
        };
        let ids = source.ids;
        let specials = special::Specials::new(&vocab)?;
        Ok(Self {
            algorithm,
            end: end::tokens(&vocab, &specials, &ids),
            specials,
            // A default can't add what the file doesn't name; a flag in the file was checked.
            add_bos: source.add_bos.unwrap_or(add_bos) && ids.bos.is_some(),
            add_eos: source.add_eos.unwrap_or(false) && ids.eos.is_some(),
            strip_after_control: source.name.is_some_and(is_phi3),
            ids,
            vocab,
        })
    }

    /// The ids of a text.
    ///
    /// # Errors
    ///
    /// If the vocabulary can't spell the text (only one without byte tokens can't), or it has 4 GiB.
    pub fn encode(&self, text: &str, specials: Specials) -> Result<Vec<TokenId>, Error> {
        if u32::try_from(text.len()).is_err() {
            return Err(Error::TextTooLong { len: text.len() });
        }
        let mut ids = Vec::with_capacity(text.len() / 4 + 2);
        if specials.add && self.add_bos {
            ids.extend(self.ids.bos);
        }
        let mut merger = Merger::default();
        let mut at = 0;
        while at < text.len() {
            let found = self.specials.find(&self.vocab, text.as_bytes(), at, specials.parse);
            let end = found.map_or(text.len(), |found| found.start);
            // Only a text that follows a special token, or nothing, is like a new text.
            self.encode_plain(&text[at..end], &mut merger, &mut ids)?;
            let Some(found) = found else { break };
            ids.push(found.id);
            at = found.end;
            if self.strip_after_control && self.kind(found.id) == TokenKind::Control {
                at = text.len() - text[at..].trim_start().len();
            }
        }
        if specials.add && self.add_eos {
            ids.extend(self.ids.eos);
        }
        Ok(ids)
    }

    /// Bytes that [`encode`](Self::encode) of a text of `text_len` bytes to `n_ids` ids takes at most, the text and the ids
    /// included, beside the working memory of its longest word. Saturates.
    pub fn encode_bound(text_len: usize, n_ids: usize) -> Bytes {
        // SentencePiece copies the text without its marks, and again with the space in front.
        let text = text_len.saturating_mul(3);
        Bytes::from(text.saturating_add(n_ids.saturating_mul(size_of::<TokenId>())))
    }

    fn encode_plain(&self, text: &str, merger: &mut Merger, ids: &mut Vec<TokenId>) -> Result<(), Error> {
        if text.is_empty() {
            return Ok(());
        }
        match &self.algorithm {
            Algorithm::Bpe(bpe) => bpe.encode(&self.vocab, text, merger, ids),
            Algorithm::Spm(spm) => {
                let text = text.replace(spm::SPACE_MARK, " ");
                let text = if spm.space_prefix { format!(" {text}") } else { text };
                spm.encode(&self.vocab, &text, merger, ids)
            }
        }
    }

    /// The bytes that a token stands for: not always whole characters. A control token gives its name.
    ///
    /// # Panics
    ///
    /// If the id is beyond the vocabulary.
    pub fn token_bytes(&self, id: TokenId) -> &[u8] {
        self.vocab.piece(id)
    }

    /// The kind of a token.
    ///
    /// # Panics
    ///
    /// If the id is beyond the vocabulary.
    pub fn kind(&self, id: TokenId) -> TokenKind {
        self.vocab.kind(id)
    }

    /// The number of tokens.
    pub fn n_vocab(&self) -> usize {
        self.vocab.len()
    }

    /// The ids that the file names by their use.
    pub fn special_ids(&self) -> SpecialIds {
        self.ids
    }

    /// Whether generation ends at this token: EOS, and the ends of turns and messages, which not every file names.
    pub fn is_eog(&self, id: TokenId) -> bool {
        self.end.binary_search(&id).is_ok()
    }

    /// Whether the model expects BOS in front of a text.
    pub fn add_bos(&self) -> bool {
        self.add_bos
    }

    /// Whether the model expects EOS at the end of a text.
    pub fn add_eos(&self) -> bool {
        self.add_eos
    }

    /// The heap that the tokenizer holds.
    pub fn heap_bytes(&self) -> Bytes {
        let algorithm = match &self.algorithm {
            Algorithm::Bpe(bpe) => size_of::<Bpe>() + bpe.heap_bytes(),
            Algorithm::Spm(spm) => size_of::<Spm>() + spm.heap_bytes(),
        };
        let end = self.end.capacity() * size_of::<TokenId>();
        Bytes::from(algorithm + self.vocab.heap_bytes() + self.specials.heap_bytes() + end)
    }

    /// What [`Self::heap_bytes`] can't exceed for a vocabulary with these texts and `n_merges` merges.
    pub(crate) fn heap_bound_of<'a>(texts: impl Iterator<Item = &'a [u8]>, n_merges: usize) -> usize {
        let (mut n, mut n_bytes) = (0, 0);
        for text in texts {
            n += 1;
            n_bytes += text.len();
        }
        Vocab::heap_bound(n, n_bytes)
            + special::Specials::heap_bound(n)
            + end::heap_bound()
            + (size_of::<Bpe>() + Bpe::heap_bound(n_merges)).max(size_of::<Spm>() + Spm::heap_bound(n))
    }
}

/// Puts the pieces into the vocabulary, as bytes instead of the ways that files write them.
fn build_vocab(source: &VocabSource<'_>) -> Result<Vocab, Error> {
    // No piece is longer than its text in the file.
    let n_bytes = source.tokens.iter().map(|text| text.len()).sum();
    let kinds = source.kinds.clone().unwrap_or_else(|| vec![TokenKind::Normal; source.tokens.len()]);
    Vocab::new(kinds, n_bytes, |id, kind, bytes| {
        let text = source.tokens[id as usize];
        let literal = matches!(kind, TokenKind::Control | TokenKind::UserDefined | TokenKind::Unknown);
        match (source.model, kind) {
            _ if literal => bytes.extend_from_slice(text.as_bytes()),
            (TokenizerModel::Bpe, _) => byte_level::decode(text, bytes),
            (TokenizerModel::Spm, TokenKind::Byte) => match spm::parse_byte(text) {
                Some(byte) => bytes.push(byte),
                None => bytes.extend_from_slice(text.as_bytes()),
            },
            (TokenizerModel::Spm, _) => push_unescaped(text, bytes),
        }
    })
}

/// Appends `text` with its space marks as spaces.
fn push_unescaped(text: &str, bytes: &mut Vec<u8>) {
    let mut rest = text;
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix(spm::SPACE_MARK) {
            bytes.push(b' ');
            rest = after;
        } else {
            // The next character that has more than one byte may be a mark. Texts are short: a search would cost more.
            let other = rest.bytes().skip(1).position(|byte| byte >= 0xC0).map_or(rest.len(), |at| at + 1);
            bytes.extend_from_slice(&rest.as_bytes()[..other]);
            rest = &rest[other..];
        }
    }
}

fn pre_tokenizer(source: &VocabSource<'_>) -> Result<PreTokenizer, Error> {
    match source.pre {
        None => Ok(PreTokenizer::DEFAULT),
        Some(name) => {
            PreTokenizer::from_name(name).ok_or_else(|| Error::UnknownPre { found: name.to_owned() })
        }
    }
}

fn spm(vocab: &Vocab, source: &VocabSource<'_>) -> Result<Spm, Error> {
    let scores = source
        .scores
        .as_deref()
        .ok_or(Error::Missing { key: keys::SCORES, need: "SentencePiece merges by score" })?;
    let mut bytes = [None; 256];
    for (id, _) in vocab.kinds().filter(|&(_, kind)| kind == TokenKind::Byte) {
        if let Some(byte) = spm::parse_byte(source.tokens[id as usize]) {
            bytes[usize::from(byte)].get_or_insert(id);
        }
    }
    Ok(Spm::new(vocab, scores, bytes, source.ids.unknown, source.add_space_prefix.unwrap_or(true)))
}

/// Whether the published tokenizer of this model drops white space after control tokens, which files don't record.
fn is_phi3(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.contains("phi-3") || name.contains("phi3")
}
