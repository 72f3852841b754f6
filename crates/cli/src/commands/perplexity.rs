//! `minfer perplexity`: how well a model predicts a text.

use std::borrow::Cow;

use minfer_engine::{CancelFlag, ModelFile, Options, Score, ScoredPosition};
use minfer_tensor::Bytes;
use minfer_text::{Specials, TokenId, Tokenizer};

use super::read_text;
use crate::args::{PerplexityArgs, ScoredText};
use crate::error::CliError;
use crate::output;
use crate::progress::Bar;
use crate::session;
use crate::signal::Interruptible;

/// Scores a text or token ids.
pub(super) fn perplexity(args: &PerplexityArgs) -> Result<(), CliError> {
    let file = session::open(&args.model)?;
    let (ids, caller) = ids(&file, &args.text)?;
    let options = Options { caller, ..args.model.engine.options() };
    let mut session = session::load(file, &args.model, &options)?;

    let work = Interruptible::begin();
    let mut bar = Bar::new(args.model.output.quiet);
    let mut document = args.model.output.json.then(|| Document::new(work.flag()));
    let mut done = 0;
    let score = session.engine.score(&ids, args.top, work.flag(), &mut |position| {
        done += 1;
        bar.step("scoring", done, ids.len() as u64);
        if let Some(document) = &mut document {
            document.add(position);
        }
    });
    drop((bar, work));
    let n_ctx = session.engine.n_ctx();
    session.finish(&args.model)?;
    let score = score?;
    if score.windows > 1 && !args.model.output.quiet {
        output::note(&format!("note: {}", windows(&score, n_ctx)));
    }
    match document {
        Some(document) => document.finish(&score)?,
        None => output::print(&line(&score))?,
    }
    if score.cancelled { Err(CliError::Interrupted) } else { Ok(()) }
}

/// The ids to score, and the bytes that they and their text take: that grows with the text, so the plan is told.
fn ids<'a>(file: &ModelFile, text: &'a ScoredText) -> Result<(Cow<'a, [TokenId]>, Bytes), CliError> {
    let (ids, text_len, what) = match (&text.tokens, &text.file) {
        (Some(tokens), _) => (Cow::Borrowed(&tokens[..]), 0, "--tokens".to_owned()),
        (None, Some(path)) => {
            let text = read_text(path)?;
            let encoded = file.tokenizer()?.encode(&text, Specials::ALL);
            let mut ids = encoded.map_err(minfer_engine::Error::Encode)?;
            ids.shrink_to_fit();
            (ids.into(), text.len(), path.display().to_string())
        }
        (None, None) => (Cow::default(), 0, "the text".to_owned()),
    };
    if ids.is_empty() {
        return Err(CliError::NoTokens { what });
    }
    let held = Tokenizer::encode_bound(text_len, ids.len());
    Ok((ids, held))
}

fn windows(score: &Score, n_ctx: usize) -> String {
    format!(
        "the text has {} tokens, the context {n_ctx}: it is scored in {} windows that know nothing of each other",
        score.n_tokens, score.windows
    )
}

fn line(score: &Score) -> String {
    let number = |x: Option<f64>| x.map_or("-".to_owned(), |x| format!("{x:.4}"));
    format!(
        "{} tokens  mean negative log-likelihood {}  perplexity {}\n",
        score.n_tokens,
        number(score.mean_nll),
        number(score.perplexity)
    )
}

/// The JSON object, written while the work goes on: a text of any length takes one piece of memory.
///
/// The sums come after the positions that they are of. A work that is cancelled ends the object as usual. An error in the
/// midst of the work leaves it cut short, which no parser takes for whole, and the exit code says the same; a text of
/// fewer than about three hundred tokens is printed whole or not at all.
struct Document {
    /// What isn't printed yet.
    piece: String,
    begun: bool,
    error: Option<CliError>,
    cancel: CancelFlag,
}

impl Document {
    /// The length from which a piece is printed.
    const PIECE: usize = 32 << 10;

    /// Nothing so far. A write that fails sets `cancel`: nobody wants the rest.
    fn new(cancel: &CancelFlag) -> Self {
        Self { piece: String::new(), begun: false, error: None, cancel: cancel.clone() }
    }

    fn add(&mut self, position: &ScoredPosition) {
        if self.error.is_some() {
            return;
        }
        self.separate();
        self.piece.push_str(&output::json(position));
        if self.piece.len() >= Self::PIECE {
            self.error = output::print(&self.piece).err();
            self.piece.clear();
        }
        if self.error.is_some() {
            self.cancel.cancel();
        }
    }

    /// Writes the beginning, and from then on the commas.
    fn separate(&mut self) {
        if self.begun {
            return self.piece.push(',');
        }
        self.begun = true;
        self.piece = format!("{{\"schema_version\":{},\"positions\":[", output::SCHEMA_VERSION);
    }

    /// Writes the rest.
    ///
    /// # Errors
    /// What kept any part from being written.
    fn finish(mut self, score: &Score) -> Result<(), CliError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        if !self.begun {
            self.separate();
        }
        // The members of the sums, which is an object of its own, continue this one.
        let sums = output::json(score);
        self.piece.push_str("],");
        self.piece.push_str(sums.trim_start_matches('{'));
        self.piece.push('\n');
        output::print(&self.piece)
    }
}
