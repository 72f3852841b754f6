//! The environment that published templates expect: that of Python's `transformers`.

use std::time::SystemTime;

use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, Value, escape_formatter, tests};
use minijinja_contrib::pycompat;

use super::{date, json, limits, meter};

/// The syntax of the field: a line with nothing but a block on it leaves no trace.
pub(super) fn syntax() -> SyntaxConfig {
    SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().unwrap_or_default()
}

/// An environment whose clock stands at `now`.
pub(super) fn new(now: SystemTime) -> Environment<'static> {
    let mut env = Environment::new();
    env.set_auto_escape_callback(|_| AutoEscape::None);
    env.set_formatter(|out, state, value| {
        limits::charge(state, value)?;
        escape_formatter(out, state, value)
    });
    env.set_unknown_method_callback(pycompat::unknown_method_callback);
    // Prints all there is.
    env.remove_global("debug");
    env.add_function("raise_exception", raise_exception);
    env.add_function("strftime_now", move |format: &str| date::strftime(now, format));
    // Unlike the engine, Python has no items in none.
    env.add_test("iterable", |value: &Value| !value.is_none() && tests::is_iterable(value));
    env.add_filter("tojson", json::tojson);
    env.add_filter(meter::PAY, meter::pay);
    env.add_filter(meter::PAY_ITEMS, meter::pay_items);
    env
}

fn raise_exception(state: &State<'_, '_>, message: &Value) -> Result<Value, Error> {
    limits::charge(state, message)?;
    Err(Error::new(ErrorKind::InvalidOperation, message.to_string()))
}
