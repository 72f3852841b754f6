//! Times loading a tokenizer and encoding a text: `load_time MODEL.gguf TEXT`.

use std::error::Error;
use std::io::Write;
use std::time::Instant;

use minfer_gguf::Index;
use minfer_text::{Specials, Tokenizer};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, text] = arguments.as_slice() else { return Err("usage: load_time MODEL.gguf TEXT".into()) };
    let index = Index::open(model)?;
    let text = std::fs::read_to_string(text)?;

    let start = Instant::now();
    let tokenizer = Tokenizer::from_metadata(index.metadata())?;
    let load = start.elapsed();

    let start = Instant::now();
    let ids = tokenizer.encode(&text, Specials::ALL)?;
    let megabytes = text.len() as f64 / 1e6;
    let rate = megabytes / start.elapsed().as_secs_f64();

    let (held, bound) = (tokenizer.heap_bytes(), Tokenizer::heap_bound(index.metadata()));
    writeln!(
        std::io::stdout(),
        "{} tokens loaded in {load:.1?}, {held} of heap ({bound} at most); {} ids at {rate:.1} MB/s",
        tokenizer.n_vocab(),
        ids.len(),
    )?;
    Ok(())
}
