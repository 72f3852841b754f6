//! Which blocks go to the device: one plan read by the loader, the builder and the assignment (rules O1 to O8).
//!
//! Everything here is arithmetic on what the file and the device say; nothing is asked and nothing is allocated.

mod fit;
mod request;

pub use fit::{fit_blocks, largest_prefix, per_block_bytes, weight_budget};
pub use request::{DeviceOffer, Offload, OffloadError, OffloadRequest};

/// Blocks `0..gpu_layers` on the device, the rest on the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OffloadPlan {
    /// Blocks on the device; at most `n_layers`.
    pub gpu_layers: u32,
    /// Blocks of the model.
    pub n_layers: u32,
}

impl OffloadPlan {
    /// Everything on the CPU.
    pub const fn cpu_only(n_layers: u32) -> Self {
        Self { gpu_layers: 0, n_layers }
    }

    /// Whether tensors outside any block (embedding, final norm, output head) are on the device: only with every block.
    pub const fn device_holds_unblocked(&self) -> bool {
        self.gpu_layers > 0 && self.gpu_layers >= self.n_layers
    }

    /// Whether a node of `layer` may run on the device.
    pub fn allows_layer(&self, layer: Option<u32>) -> bool {
        layer.map_or(self.device_holds_unblocked(), |layer| layer < self.gpu_layers)
    }

    /// Whether a weight of this name belongs on the device.
    pub fn allows_weight(&self, name: &str) -> bool {
        self.allows_layer(block_of(name))
    }
}

/// The block of a tensor's name: `i` of `{namespace}blk.{i}.…`, where `blk` is a whole component. `None` outside any block.
pub fn block_of(name: &str) -> Option<u32> {
    let mut parts = name.split('.');
    parts.find(|&part| part == "blk")?;
    let index = parts.next().filter(|index| index.bytes().all(|b| b.is_ascii_digit()))?;
    parts.next()?;
    index.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o3_the_block_is_a_component_of_the_name() {
        let cases = [
            ("blk.0.attn_q.weight", Some(0)),
            ("blk.17.ffn_gate.weight", Some(17)),
            ("v.blk.3.ln1.bias", Some(3)),
            ("blk.2.attn_qkv", Some(2)),
            ("blk.2.ffn_gu", Some(2)),
            ("myblk.3.x", None),
            ("blk.3", None),
            ("blk.+3.x", None),
            ("blk..x", None),
            ("blk.x.y", None),
            ("blk.99999999999.x", None),
            ("token_embd.weight", None),
            ("", None),
        ];
        for (name, block) in cases {
            assert_eq!(block_of(name), block, "{name}");
        }
    }

    #[test]
    fn o1_unblocked_tensors_follow_a_full_offload_only() {
        for (gpu_layers, n_layers, full) in [(0, 4, false), (3, 4, false), (4, 4, true), (0, 0, false)] {
            let plan = OffloadPlan { gpu_layers, n_layers };
            assert_eq!(plan.device_holds_unblocked(), full);
            assert_eq!(plan.allows_weight("output_norm.weight"), full);
            assert_eq!(plan.allows_weight("blk.3.attn_k.weight"), full);
            assert_eq!(plan.allows_weight("blk.2.attn_k.weight"), gpu_layers > 2);
        }
    }
}
