//! The parameters of sampling, and where their defaults come from.

use minfer_gguf::Metadata;

use super::Error;

/// How tokens are drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SamplingParams {
    /// Divides the logits: 0 is greedy, 1 the model's own distribution.
    pub temperature: f32,
    /// Keeps this many of the best tokens; 0 keeps all.
    pub top_k: usize,
    /// Keeps the best tokens up to this much probability together, from 0 (the best one) to 1 (all).
    pub top_p: f32,
    /// Keeps tokens at least this share as likely as the best one, from 0 (all) to 1.
    pub min_p: f32,
    /// Divides the positive logits of recent tokens, and multiplies negative ones; 1 changes nothing.
    pub repeat_penalty: f32,
    /// How many tokens are recent.
    pub repeat_last_n: usize,
    /// Determines what is drawn; random if absent.
    pub seed: Option<u64>,
}

impl Default for SamplingParams {
    /// Temperature 0.8, top-k 40, top-p 0.95, min-p 0.05, no repeat penalty, a random seed.
    fn default() -> Self {
        Self {
            temperature: 0.8,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            repeat_penalty: 1.0,
            repeat_last_n: 64,
            seed: None,
        }
    }
}

impl SamplingParams {
    /// The defaults of a file, `general.sampling.*`, with [`Self::default`] for what it doesn't give.
    ///
    /// # Errors
    ///
    /// If one isn't a number, or is out of range.
    pub fn from_metadata(metadata: &Metadata) -> Result<Self, Error> {
        let mut params = Self::default();
        let float = |key, value: &mut f32| read(metadata.f32(key), value);
        let count = |key, value: &mut usize| read(metadata.usize(key), value);
        float("general.sampling.temp", &mut params.temperature)?;
        count("general.sampling.top_k", &mut params.top_k)?;
        float("general.sampling.top_p", &mut params.top_p)?;
        float("general.sampling.min_p", &mut params.min_p)?;
        float("general.sampling.penalty_repeat", &mut params.repeat_penalty)?;
        count("general.sampling.penalty_last_n", &mut params.repeat_last_n)?;
        params.check()?;
        Ok(params)
    }

    /// Checks that every parameter is in its range.
    ///
    /// # Errors
    ///
    /// If one isn't; the message names it.
    pub fn check(&self) -> Result<(), Error> {
        let ranges = [
            ("temperature", self.temperature, 0.0..=f32::MAX, "0 or more"),
            ("top-p", self.top_p, 0.0..=1.0, "0 to 1"),
            ("min-p", self.min_p, 0.0..=1.0, "0 to 1"),
            ("repeat penalty", self.repeat_penalty, f32::MIN_POSITIVE..=f32::MAX, "more than 0"),
        ];
        for (name, found, range, expected) in ranges {
            if !range.contains(&found) {
                return Err(Error::OutOfRange { name, found, expected });
            }
        }
        Ok(())
    }
}

fn read<T>(found: Result<Option<T>, minfer_gguf::Error>, value: &mut T) -> Result<(), Error> {
    if let Some(found) = found.map_err(|error| Error::Metadata(error.to_string()))? {
        *value = found;
    }
    Ok(())
}
