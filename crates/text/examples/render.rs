//! Renders a conversation: `render TEMPLATE [MESSAGES]`, from a GGUF or text file, with so many messages.

use std::error::Error;
use std::io::Write;
use std::time::Instant;

use minfer_gguf::Index;
use minfer_text::{ChatTemplate, Message, RenderOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let path = arguments.first().ok_or("usage: render TEMPLATE [MESSAGES]")?;
    let n = arguments.get(1).map_or(Ok(3), |n| n.parse::<usize>())?;
    let template = if path.ends_with(".gguf") {
        ChatTemplate::from_metadata(Index::open(path)?.metadata())?.ok_or("the file has no chat template")?
    } else {
        ChatTemplate::new(&std::fs::read_to_string(path)?)
    };
    let messages: Vec<Message> = (0..n)
        .map(|i| Message::new(if i % 2 == 0 { "user" } else { "assistant" }, format!("message {i}")))
        .collect();
    let start = Instant::now();
    let text = template.render(&messages, &RenderOptions::default())?;
    let mut out = std::io::stdout();
    writeln!(out, "{text}\n{} bytes in {:.1?}", text.len(), start.elapsed())?;
    Ok(())
}
