//! Chat templates: a conversation to the text that a model was trained on.
//!
//! A template is a Jinja program from an untrusted file. It runs in an environment set up as the models' publishers do
//! (block trimming, Python's methods, `raise_exception`, `strftime_now`, JSON without HTML escapes), with a budget for its
//! work and memory that its instructions are rewritten to keep, in a thread whose stack bounds its depth.

mod date;
mod environment;
mod error;
mod json;
mod limits;
mod meter;
mod source;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::SystemTime;

pub use error::Error;
use minfer_gguf::Metadata;
use minfer_tensor::Bytes;
use minijinja::{Value, context};

const KEY: &str = "tokenizer.chat_template";

/// Deep enough for the deepest tree that a template of the greatest length can spell; only what is used takes memory.
const STACK: usize = 128 << 20;

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Who speaks: `system`, `user` or `assistant`, or what else the template knows.
    pub role: String,
    /// What is said.
    pub content: String,
}

impl Message {
    /// A message of this role with this content.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into() }
    }
}

/// What a template is told beside the conversation.
#[derive(Debug, Clone, Copy)]
pub struct RenderOptions<'a> {
    /// Whether the text ends where the assistant's answer begins.
    pub add_generation_prompt: bool,
    /// The text of the BOS token; empty if there is none.
    pub bos_token: &'a str,
    /// The text of the EOS token; empty if there is none.
    pub eos_token: &'a str,
    /// The time for templates that state the date, in UTC.
    pub now: SystemTime,
}

impl Default for RenderOptions<'_> {
    /// With a generation prompt, without token texts, now.
    fn default() -> Self {
        Self { add_generation_prompt: true, bos_token: "", eos_token: "", now: SystemTime::now() }
    }
}

/// The chat template of a file.
///
/// It is compiled for each rendering, in well under a millisecond: a template with an error breaks nothing until it is
/// used, and none holds more memory than its text.
#[derive(Debug, Clone)]
pub struct ChatTemplate {
    source: source::Source,
}

impl ChatTemplate {
    /// A template with this text.
    pub fn new(text: &str) -> Self {
        Self { source: source::Source::new(text) }
    }

    /// The template of a file, none if it has none.
    ///
    /// # Errors
    ///
    /// If `tokenizer.chat_template` isn't a string.
    pub fn from_metadata(metadata: &Metadata) -> Result<Option<Self>, Error> {
        Ok(metadata.str(KEY)?.map(Self::new))
    }

    /// The text of a conversation. Its special tokens are spelled out: encode it with `Specials::PARSE`.
    ///
    /// # Errors
    ///
    /// If the template doesn't compile, refuses the conversation, or needs more time, memory or depth than any
    /// conversation of this size should.
    pub fn render(&self, messages: &[Message], options: &RenderOptions<'_>) -> Result<String, Error> {
        let source = self.source.text()?;
        let render = || render(source, messages, options);
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("chat-template".into()).stack_size(STACK);
            let handle = thread.spawn_scoped(scope, || catch_unwind(AssertUnwindSafe(render)))?;
            handle.join().and_then(|result| result).unwrap_or(Err(Error::Crashed))
        })
    }

    /// The heap that the template holds.
    pub fn heap_bytes(&self) -> Bytes {
        Bytes::from(self.source.heap_bytes())
    }

    /// What [`Self::heap_bytes`] can't exceed for the template of this file.
    pub fn heap_bound(metadata: &Metadata) -> Bytes {
        let text = metadata.get(KEY).and_then(|value| value.as_str()).unwrap_or_default();
        Bytes::from(source::Source::heap_bound(text.len()))
    }
}

fn render(source: &str, messages: &[Message], options: &RenderOptions<'_>) -> Result<String, Error> {
    let mut env = environment::new(options.now);
    env.set_fuel(Some(limits::fuel(messages)));
    let program = meter::Program::compile(source, environment::syntax())
        .map_err(|error| Error::from_compile(&error))?;
    let messages: Vec<Value> = messages
        .iter()
        .map(|m| Value::from_pairs([("role", m.role.as_str()), ("content", m.content.as_str())]))
        .collect();
    let context = context! {
        messages,
        tools => (),
        documents => (),
        add_generation_prompt => options.add_generation_prompt,
        bos_token => options.bos_token,
        eos_token => options.eos_token,
    };
    program.run(&env, context).map_err(|error| Error::from_render(&error))
}

#[cfg(test)]
mod tests;
