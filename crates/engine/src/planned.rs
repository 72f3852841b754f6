//! A plan that is carried out as it was shown: computed once, then handed to the load.

use crate::planner::{Host, Resolution, resolve};
use crate::{Error, ModelFile, Options, Plan};

/// A model file and the plan for it, with all that [`Engine::load`](crate::Engine::load) commits.
#[derive(Debug)]
pub struct Planned {
    file: ModelFile,
    resolution: Resolution,
}

impl Planned {
    /// Plans `file`, as [`plan`](crate::plan()) does. A plan that doesn't fit is one too: loading refuses it.
    ///
    /// # Errors
    /// As [`plan`](crate::plan()).
    pub fn new(file: ModelFile, options: &Options, host: &Host) -> Result<Self, Error> {
        let resolution = resolve(&file, options, host)?;
        Ok(Self { file, resolution })
    }

    /// Where every byte will go.
    pub fn plan(&self) -> &Plan {
        &self.resolution.plan
    }

    /// The file and what to commit, if the plan was admitted.
    pub(crate) fn admitted(self) -> Result<(ModelFile, Resolution), Error> {
        match &self.plan().refusal {
            Some(refusal) => Err(Error::Refused(refusal.message.clone())),
            None => Ok((self.file, self.resolution)),
        }
    }
}
