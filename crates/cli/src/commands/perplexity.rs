//! `minfer perplexity`: how well a model predicts a text.

use minfer_engine::{ModelFile, Score};
use minfer_text::{Specials, TokenId};

use super::read_text;
use crate::args::{PerplexityArgs, ScoredText};
use crate::error::CliError;
use crate::output::{self, Versioned};
use crate::progress::Bar;
use crate::session;
use crate::signal::Interruptible;

/// Scores a text or token ids.
pub(super) fn perplexity(args: &PerplexityArgs) -> Result<(), CliError> {
    let file = session::open(&args.model)?;
    let ids = ids(&file, &args.text)?;
    let mut session = session::load(file, &args.model, &args.model.engine.options())?;

    let work = Interruptible::begin();
    let mut bar = Bar::new(args.model.output.quiet);
    let score = session.engine.score(&ids, args.top, work.flag(), &mut |done, total| {
        bar.step("scoring", done as u64, total as u64);
    });
    drop((bar, work));
    let n_ctx = session.engine.n_ctx();
    session.finish(&args.model)?;
    let score = score?;
    if score.windows > 1 && !args.model.output.quiet {
        output::note(&format!("note: {}", windows(&score, n_ctx)));
    }
    show(&score, args.model.output.json)?;
    if score.cancelled { Err(CliError::Interrupted) } else { Ok(()) }
}

fn ids(file: &ModelFile, text: &ScoredText) -> Result<Vec<TokenId>, CliError> {
    let (ids, what) = match (&text.tokens, &text.file) {
        (Some(tokens), _) => (tokens.clone(), "--tokens".to_owned()),
        (None, Some(path)) => {
            let encoded = file.tokenizer()?.encode(&read_text(path)?, Specials::ALL);
            (encoded.map_err(minfer_engine::Error::Encode)?, path.display().to_string())
        }
        (None, None) => (Vec::new(), "the text".to_owned()),
    };
    if ids.is_empty() { Err(CliError::NoTokens { what }) } else { Ok(ids) }
}

fn windows(score: &Score, n_ctx: usize) -> String {
    format!(
        "the text has {} tokens, the context {n_ctx}: it is scored in {} windows that know nothing of each other",
        score.n_tokens, score.windows
    )
}

fn show(score: &Score, json: bool) -> Result<(), CliError> {
    if json {
        return output::print_json(&Versioned::new(score));
    }
    let number = |x: Option<f64>| x.map_or("-".to_owned(), |x| format!("{x:.4}"));
    output::print(&format!(
        "{} tokens  mean negative log-likelihood {}  perplexity {}\n",
        score.n_tokens,
        number(score.mean_nll),
        number(score.perplexity)
    ))
}
