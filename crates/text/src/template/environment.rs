//! The environment that published templates expect: that of Python's `transformers`.

use std::time::SystemTime;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, StringInput, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, Value, escape_formatter, filters};
use minijinja_contrib::pycompat;

use super::{date, json, limits};

/// An environment whose clock stands at `now`.
pub(super) fn new(now: SystemTime) -> Environment<'static> {
    let mut env = Environment::new();
    if let Ok(syntax) = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build() {
        env.set_syntax(syntax);
    }
    env.set_auto_escape_callback(|_| AutoEscape::None);
    env.set_formatter(|out, state, value| {
        limits::charge(state, value)?;
        escape_formatter(out, state, value)
    });
    env.set_unknown_method_callback(method);
    env.add_function("raise_exception", raise_exception);
    env.add_function("strftime_now", move |format: &str| date::strftime(now, format));
    env.add_filter("tojson", json::tojson);
    env.add_filter("join", join);
    env
}

fn raise_exception(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message))
}

/// Python's methods; those that make text of whatever they are given pay for it first.
fn method(state: &mut State<'_, '_>, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    match (value.kind(), name) {
        (ValueKind::String, "join") if args.len() == 1 => {
            let items = items(state, &args[0])?;
            pycompat::unknown_method_callback(state, value, name, &[items])
        }
        (ValueKind::String, "format") | (ValueKind::Seq, "count") => {
            limits::charge(state, value)?;
            args.iter().try_for_each(|arg| limits::charge(state, arg))?;
            pycompat::unknown_method_callback(state, value, name, args)
        }
        _ => pycompat::unknown_method_callback(state, value, name, args),
    }
}

/// The built-in filter, with its items paid for.
fn join(
    state: &mut State<'_, '_>,
    value: &Value,
    joiner: Option<StringInput<'_>>,
    attribute: Option<&str>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let items = items(state, value)?;
    filters::join(state, &items, joiner, attribute, kwargs)
}

/// The items of a sequence, all paid for.
fn items(state: &State<'_, '_>, value: &Value) -> Result<Value, Error> {
    let mut items = Vec::new();
    for item in value.try_iter()? {
        limits::charge(state, &item)?;
        items.push(item);
    }
    Ok(Value::from(items))
}
