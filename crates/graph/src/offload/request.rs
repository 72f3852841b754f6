//! From what was asked for to a plan (rule O2).

use minfer_tensor::Bytes;
use thiserror::Error;

use super::{OffloadPlan, fit_blocks};

/// How many blocks were asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OffloadRequest {
    /// Nothing was said: every block that the device supports, and no word about it where there is no device.
    #[default]
    Unset,
    /// Every block that the device supports.
    All,
    /// As many as fit.
    Auto,
    /// This many.
    Blocks(u32),
}

/// What a device has for a model.
#[derive(Clone, Copy, Debug)]
pub struct DeviceOffer<'a> {
    /// Blocks from the first on that it has kernels for.
    pub supported: u32,
    /// What [`weight_budget`](super::weight_budget) says; `None` if it has no memory to account for.
    pub budget: Option<Bytes>,
    /// The part of the budget that isn't for weights.
    pub reserve: Bytes,
    /// What [`per_block_bytes`](super::per_block_bytes) says.
    pub per_block: &'a [Bytes],
}

/// A plan, and what a person should be told about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offload {
    /// The plan. For [`OffloadRequest::Auto`] an upper bound: the exact bytes may lower it (rule B2).
    pub plan: OffloadPlan,
    /// Why it isn't what was asked for.
    pub note: Option<String>,
}

/// Why a request has no plan.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum OffloadError {
    /// The automatic fit has nothing to fit to.
    #[error("how many blocks fit can't be told: the device's free memory is unknown ({name})")]
    UnknownMemory {
        /// The driver's own error name.
        name: String,
    },
}

impl OffloadRequest {
    /// Resolves the request for a model of `n_layers` blocks. Pure.
    pub fn plan(self, n_layers: u32, device: Option<&DeviceOffer<'_>>) -> Offload {
        let Some(device) = device else { return self.without_device(n_layers) };
        let supported = device.supported.min(n_layers);
        let wanted = match self {
            Self::Unset | Self::All => n_layers,
            Self::Blocks(n) => n.min(n_layers),
            Self::Auto => {
                device.budget.map_or(0, |budget| fit_blocks(budget, device.per_block, device.reserve))
            }
        };
        let gpu_layers = wanted.min(supported);
        let note = match self {
            _ if gpu_layers < wanted => Some(format!(
                "the device has no kernels for block {supported}: {gpu_layers} of {n_layers} blocks go there"
            )),
            Self::Blocks(n) if n > n_layers => {
                Some(format!("{n} blocks were asked for, the model has {n_layers}"))
            }
            _ => None,
        };
        Offload { plan: OffloadPlan { gpu_layers, n_layers }, note }
    }

    fn without_device(self, n_layers: u32) -> Offload {
        let asked = match self {
            Self::All => Some("all blocks"),
            Self::Blocks(n) if n > 0 => Some("blocks"),
            _ => None,
        };
        let note = asked
            .map(|what| format!("{what} were asked for on a device, but there is none: running on the CPU"));
        Offload { plan: OffloadPlan::cpu_only(n_layers), note }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(supported: u32, budget: Option<u64>, per_block: &[Bytes]) -> DeviceOffer<'_> {
        DeviceOffer { supported, budget: budget.map(Bytes::new), reserve: Bytes::new(5), per_block }
    }

    #[test]
    fn o2_requests_resolve_without_a_device() {
        use OffloadRequest::{All, Auto, Blocks, Unset};
        for (request, told) in
            [(Unset, false), (Auto, false), (Blocks(0), false), (Blocks(3), true), (All, true)]
        {
            let offload = request.plan(4, None);
            assert_eq!(offload.plan, OffloadPlan::cpu_only(4), "{request:?}");
            assert_eq!(offload.note.is_some(), told, "{request:?}");
        }
    }

    #[test]
    fn o2_requests_resolve_on_a_device() {
        use OffloadRequest::{All, Auto, Blocks, Unset};
        let blocks = [Bytes::new(10); 4];
        let cases = [
            (Unset, 4, None, 4),
            (All, 4, Some(1), 4),
            (All, 2, None, 2),
            (Auto, 4, Some(35), 3),
            (Auto, 2, Some(35), 2),
            (Auto, 4, None, 0),
            (Auto, 4, Some(0), 0),
            (Blocks(0), 4, None, 0),
            (Blocks(3), 4, None, 3),
            (Blocks(3), 2, None, 2),
        ];
        for (request, supported, budget, expected) in cases {
            let offload = request.plan(4, Some(&offer(supported, budget, &blocks)));
            assert_eq!(
                offload.plan,
                OffloadPlan { gpu_layers: expected, n_layers: 4 },
                "{request:?} {budget:?}"
            );
        }
    }

    #[test]
    fn s10_more_blocks_than_the_model_has_clamp_and_say_so() {
        let offload = OffloadRequest::Blocks(u32::MAX).plan(4, Some(&offer(4, None, &[])));
        assert_eq!(offload.plan, OffloadPlan { gpu_layers: 4, n_layers: 4 });
        assert_eq!(offload.note.as_deref(), Some("4294967295 blocks were asked for, the model has 4"));
        let fewer = OffloadRequest::All.plan(4, Some(&offer(1, None, &[])));
        assert_eq!(
            fewer.note.as_deref(),
            Some("the device has no kernels for block 1: 1 of 4 blocks go there")
        );
    }
}
