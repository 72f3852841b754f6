//! A plan that is carried out as it was shown: computed once, then handed to the load.

use std::sync::Arc;

use minfer_graph::{DeviceMemory, DeviceSpec, budget_decision};

use crate::machine::{Host, Machine};
use crate::planner::{Resolution, resolve};
use crate::{Error, ModelFile, Options, Plan, Setting, parse_mib};

/// A model file and the plan for it, with all that [`Engine::load`](crate::Engine::load) commits.
#[derive(Debug)]
pub struct Planned {
    file: ModelFile,
    options: Options,
    host: Host,
    resolution: Resolution,
}

impl Planned {
    /// Plans `file`, as [`plan`](crate::plan()) does. A plan that doesn't fit is one too: loading refuses it.
    ///
    /// # Errors
    /// As [`plan`](crate::plan()).
    pub fn new(file: ModelFile, options: &Options, host: &Host) -> Result<Self, Error> {
        let resolution = resolve(&file, options, host)?;
        Ok(Self { file, options: options.clone(), host: host.clone(), resolution })
    }

    /// Where every byte will go.
    pub fn plan(&self) -> &Plan {
        &self.resolution.plan
    }

    pub(crate) fn file(&self) -> &ModelFile {
        &self.file
    }

    pub(crate) fn resolution(&self) -> &Resolution {
        &self.resolution
    }

    /// The file and its plan, once it is carried out.
    pub(crate) fn into_parts(self) -> (ModelFile, Resolution) {
        (self.file, self.resolution)
    }

    /// Whether anything runs on the device.
    pub(crate) fn uses_device(&self) -> bool {
        self.resolution.params.gpu_layers > 0
    }

    /// The description of the device, if there is one.
    pub(crate) fn device_spec(&self) -> Option<Arc<dyn DeviceSpec>> {
        self.host.device.as_ref().map(|device| Arc::clone(&device.spec))
    }

    /// Refuses a plan that wasn't admitted.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match &self.plan().refusal {
            Some(refusal) => Err(Error::Refused(refusal.message.clone())),
            None => Ok(()),
        }
    }

    /// Compares the device's free memory with the answer that the plan stands on (rule B6). If it shrank and no longer
    /// holds the plan, an automatic fit is made again, and anything else refused.
    pub(crate) fn sample_again(mut self, machine: &dyn Machine) -> Result<Self, Error> {
        let Some(device) = self.host.device.as_mut().filter(|_| self.resolution.params.gpu_layers > 0) else {
            return Ok(self);
        };
        let now = machine.device_memory();
        let (DeviceMemory::Reported { free: before, .. }, DeviceMemory::Reported { free, .. }) =
            (device.memory.clone(), &now)
        else {
            return Ok(self);
        };
        let (free, given) = (*free, self.options.gpu_mem.as_ref().map(parse_mib).transpose()?);
        // A budget that was given isn't more than there is.
        let budget = budget_decision(given.map(|given| given.min(free)), &now).budget;
        let need = self.resolution.memory.backends()[0].charges().total();
        if free >= before || budget.limit().is_none_or(|limit| need <= limit) {
            return Ok(self);
        }
        let shrunk =
            format!("the device's free memory went from {before} to {free} after it was planned for");
        if !self.options.is_auto() {
            let rule = "; --gpu-layers auto takes as many blocks as fit";
            return Err(Error::Refused(format!("{shrunk}: the plan takes {need} there{rule}")));
        }
        device.memory = now;
        let capped = given.map(|given| Setting::of_mib(given.min(free), "the device's free memory"));
        let options = Options { gpu_mem: capped, ..self.options };
        let mut again = Self::new(self.file, &options, &self.host)?;
        again.check()?;
        again.resolution.plan.notes.push(format!("{shrunk}: planned again"));
        Ok(again)
    }

    /// The plan without the device, which failed (rule O6): everything on the CPU, if that is admitted.
    pub(crate) fn without_device(self, error: &minfer_graph::Error) -> Result<Self, Error> {
        let reason = format!("the device can't take its part of the model ({error}): running on the CPU");
        let host = Host { device: None, no_device: Some(reason.clone()), ..self.host };
        let planned = Self::new(self.file, &self.options, &host)?;
        planned.check().map_err(|refused| Error::Refused(format!("{reason}; {refused}")))?;
        Ok(planned)
    }
}
