//! A conversation: messages, the chat template, and a cache that is kept from turn to turn.

use minfer_text::{Message, TokenId};

use crate::{CancelFlag, Engine, Error, Event, GenerateOptions, Generation, StopReason};

/// Tokens that a turn keeps free for the answer, at most a quarter of the context.
const ANSWER_ROOM: usize = 256;

/// Messages between a person and a model. The keys and values of earlier turns stay in the engine's cache.
#[derive(Clone, Debug, Default)]
pub struct Conversation {
    system: Option<String>,
    turns: Vec<Message>,
    /// What the cache holds as text and as tokens, where the two are known to agree.
    known: Option<Known>,
}

#[derive(Clone, Debug)]
struct Known {
    text: String,
    ids: Vec<TokenId>,
}

/// One turn's answer.
#[derive(Clone, Debug)]
pub struct Turn {
    /// The answer.
    pub generation: Generation,
    /// Earlier turns (a question and its answer) that were dropped to make room.
    pub dropped_turns: usize,
}

impl Conversation {
    /// A conversation that begins with a system prompt, if any.
    pub fn new(system: Option<String>) -> Self {
        Self { system, ..Self::default() }
    }

    /// The messages so far, without the system prompt.
    pub fn messages(&self) -> &[Message] {
        &self.turns
    }

    /// Forgets all turns; the system prompt stays.
    pub fn clear(&mut self) {
        self.turns.clear();
        self.known = None;
    }

    /// Replaces the system prompt; the turns stay.
    pub fn set_system(&mut self, system: Option<String>) {
        self.system = system;
        self.known = None;
    }

    /// Asks and answers. Only what the cache lacks is computed. At the end of the context the oldest turns go first; a
    /// question that doesn't fit alone is refused, and then the conversation is as before.
    pub fn turn(
        &mut self,
        engine: &mut Engine,
        user: &str,
        options: &GenerateOptions,
        cancel: &CancelFlag,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<Turn, Error> {
        let mut asked = self.clone();
        asked.turns.push(Message::new("user", user));
        let (mut known, dropped_turns) = asked.fit(engine, options)?;
        let generation = engine.generate(&known.ids, options, cancel, on_event)?;
        asked.turns.push(Message::new("assistant", generation.text.as_str()));
        known.text.push_str(&generation.text);
        known.ids.extend_from_slice(&generation.ids);
        // After a stop string the tokens say more than the text.
        asked.known = (generation.stop != StopReason::Stop).then_some(known);
        *self = asked;
        Ok(Turn { generation, dropped_turns })
    }

    /// The prompt of the turn, after dropping as many of the oldest turns as it takes.
    fn fit(&mut self, engine: &Engine, options: &GenerateOptions) -> Result<(Known, usize), Error> {
        let n_ctx = engine.n_ctx();
        let room = ANSWER_ROOM.min(n_ctx / 4).min(options.max_tokens.unwrap_or(usize::MAX));
        let mut dropped = 0;
        loop {
            let prompt = self.prompt(engine)?;
            if prompt.ids.len() + room <= n_ctx || self.turns.len() < 3 {
                return Ok((prompt, dropped));
            }
            self.turns.drain(..2);
            self.known = None;
            dropped += 1;
        }
    }

    fn prompt(&self, engine: &Engine) -> Result<Known, Error> {
        let system = self.system.iter().map(|s| Message::new("system", s.as_str()));
        let messages: Vec<Message> = system.chain(self.turns.iter().cloned()).collect();
        let text = engine.render(&messages)?;
        let new =
            self.known.as_ref().and_then(|known| Some((known, text.strip_prefix(known.text.as_str())?)));
        let ids = match new {
            Some((known, rest)) => {
                let mut ids = known.ids.clone();
                ids.extend(engine.encode_rest(rest)?);
                ids
            }
            None => engine.encode_rendered(&text)?,
        };
        Ok(Known { text, ids })
    }
}
