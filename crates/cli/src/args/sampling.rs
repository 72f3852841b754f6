//! How the next token is chosen, and when to stop.

use clap::Args;

/// The options of generation. What isn't given is the file's, then minfer's default.
#[derive(Debug, Args)]
pub(crate) struct SamplingArgs {
    /// Temperature; 0 takes the likeliest token
    #[arg(long, value_name = "T", value_parser = at_least_0)]
    pub(crate) temp: Option<f32>,
    /// Choose among the K likeliest tokens; 0 is all
    #[arg(long, value_name = "K")]
    pub(crate) top_k: Option<u32>,
    /// Choose among the likeliest tokens that add up to P
    #[arg(long, value_name = "P", value_parser = fraction)]
    pub(crate) top_p: Option<f32>,
    /// Leave out tokens less likely than P times the likeliest
    #[arg(long, value_name = "P", value_parser = fraction)]
    pub(crate) min_p: Option<f32>,
    /// Make tokens that were there already less likely; 1 doesn't
    #[arg(long, value_name = "R", value_parser = above_0)]
    pub(crate) repeat_penalty: Option<f32>,
    /// Seed of the random choices
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// The most tokens to generate; without it, until the model ends or the context is full
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) max_tokens: Option<usize>,
    /// Stop before this text; may be given more than once
    #[arg(long, value_name = "TEXT", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) stop: Vec<String>,
    /// What the model is told before the conversation
    #[arg(long, value_name = "TEXT", conflicts_with = "no_template")]
    pub(crate) system: Option<String>,
    /// Continue the prompt as it is, without the model's chat template
    #[arg(long)]
    pub(crate) no_template: bool,
    /// Go on when the model ends its answer
    #[arg(long)]
    pub(crate) ignore_eos: bool,
}

fn at_least_0(text: &str) -> Result<f32, String> {
    number(text, |x| x >= 0.0, "a number of at least 0")
}

fn above_0(text: &str) -> Result<f32, String> {
    number(text, |x| x > 0.0, "a number above 0")
}

fn fraction(text: &str) -> Result<f32, String> {
    number(text, |x| (0.0..=1.0).contains(&x), "a number from 0 to 1")
}

fn number(text: &str, accepts: impl Fn(f32) -> bool, expected: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(x) if x.is_finite() && accepts(x) => Ok(x),
        _ => Err(format!("expected {expected}")),
    }
}
