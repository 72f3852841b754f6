//! What a template may cost.
//!
//! The engine's fuel pays for instructions and for the bytes they make, so that it bounds time and memory together. What
//! walks through values costs more than that, and is charged here before it runs.

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, State, Value};

use super::Message;

/// The bytes that the engine makes for one unit of fuel.
const BYTES_PER_FUEL: usize = 64;

/// How deep a value may be nested that is made into text.
const MAX_DEPTH: usize = 64;

/// Enough for any published template: some passes over the conversation, some thousand steps a message.
pub(super) fn fuel(messages: &[Message]) -> u64 {
    let bytes: usize = messages.iter().map(|m| m.role.len() + m.content.len()).sum();
    // Half a million units are 32 MB at most.
    let fuel = 500_000 + messages.len().saturating_mul(2000) + bytes / 2;
    fuel as u64
}

/// Pays for visiting a value with all it contains, which may be the same thing many times over.
///
/// A text by itself is free: the engine pays for texts.
pub(super) fn charge(state: &State<'_, '_>, value: &Value) -> Result<(), Error> {
    if is_container(value) { charge_at(state, value, 0) } else { Ok(()) }
}

fn charge_at(state: &State<'_, '_>, value: &Value, depth: usize) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(Error::new(ErrorKind::InvalidOperation, "a value is nested too deep"));
    }
    let len = value.as_str().map_or(0, str::len);
    state.consume_fuel((1 + len / BYTES_PER_FUEL) as u64)?;
    if is_container(value) {
        for item in value.try_iter()? {
            if value.kind() == ValueKind::Map {
                charge_at(state, &value.get_item(&item)?, depth + 1)?;
            }
            charge_at(state, &item, depth + 1)?;
        }
    }
    Ok(())
}

fn is_container(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable | ValueKind::Map)
}
