//! `minfer tokenize`: the token ids of a text.

use std::fmt::Write;

use minfer_engine::{Error, ModelFile};
use minfer_gguf::Index;
use minfer_text::{Specials, TokenId, Tokenizer};
use serde::Serialize;

use super::read_text;
use crate::args::TokenizeArgs;
use crate::error::CliError;
use crate::escape;
use crate::output::{self, Versioned};
use crate::session::{self, MemoryReport};

#[derive(Serialize)]
struct Tokens {
    ids: Vec<TokenId>,
    /// What each token spells; U+FFFD for the bytes of a token that are part of a character.
    pieces: Vec<String>,
}

/// Shows the ids and what each of them spells.
pub(super) fn tokenize(args: &TokenizeArgs) -> Result<(), CliError> {
    let report = MemoryReport::create(&args.model)?;
    let path = session::resolve(&args.model)?;
    let index = Index::open(&path)?;
    // A vocabulary is enough: the file needn't be a model that minfer runs.
    let tokenizer = Tokenizer::from_metadata(index.metadata());
    let tokenizer = tokenizer.map_err(|source| Error::Tokenizer { path: path.clone(), source })?;
    let text = read_text(&args.file)?;
    let specials = if args.no_special { Specials::NONE } else { Specials::ALL };
    let ids = tokenizer.encode(&text, specials).map_err(Error::Encode)?;
    let pieces = ids.iter().map(|&id| piece(&tokenizer, id)).collect();
    let tokens = Tokens { ids, pieces };
    if args.model.memory_report.is_some() {
        report.write_plan(&ModelFile::open(&path)?, &args.model.engine)?;
    }
    if args.model.output.json {
        return output::print_json(&Versioned::new(tokens));
    }
    output::print(&lines(&tokens))
}

fn piece(tokenizer: &Tokenizer, id: TokenId) -> String {
    String::from_utf8_lossy(tokenizer.token_bytes(id)).into_owned()
}

fn lines(tokens: &Tokens) -> String {
    let mut lines = String::new();
    for (id, piece) in tokens.ids.iter().zip(&tokens.pieces) {
        let _ = writeln!(lines, "{id:>8}  {}", escape::line(piece));
    }
    lines
}
