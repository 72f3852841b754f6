//! The plan as people and scripts read it: where every byte goes, before anything is loaded and after a run.

use std::path::PathBuf;

use serde::Serialize;

/// The plan, and in the same shape the report of a run. Byte counts are integers in bytes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// Version of this shape.
    pub schema_version: u32,
    /// The model.
    pub model: ModelInfo,
    /// What was asked for, and all that the bytes depend on.
    pub request: Request,
    /// The layer offload.
    pub offload: Offload,
    /// One entry a backend, the CPU last.
    pub backends: Vec<BackendMemory>,
    /// One entry a block.
    pub blocks: Vec<BlockMemory>,
    /// The same request with weights repacked for the CPU and without, in this order; a choice whose bytes can't be
    /// counted is missing.
    pub repack_choices: Vec<RepackChoice>,
    /// Bytes of keys and values that one token of context costs.
    pub kv_bytes_per_token: u64,
    /// Nearby requests each of which alone would be admitted.
    pub alternatives: Vec<Alternative>,
    /// Whether the plan is admitted.
    pub fits: bool,
    /// Why it isn't.
    pub refusal: Option<Refusal>,
    /// Remarks for people: a clamped number, a context beyond the trained one.
    #[serde(skip)]
    pub notes: Vec<String>,
}

impl Plan {
    /// The current [`schema_version`](Self::schema_version).
    pub const SCHEMA_VERSION: u32 = 1;
}

/// The model of a plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelInfo {
    /// The file; of a split model its first part.
    pub path: PathBuf,
    /// `general.architecture`.
    pub architecture: String,
    /// Blocks.
    pub n_layers: usize,
    /// Bytes of the file, all parts together.
    pub file_bytes: u64,
}

/// The request of a plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Request {
    /// Spelling of the offload request.
    pub gpu_layers: String,
    /// Where it came from; `default` where nothing was said.
    pub source: String,
    /// Positions of the context.
    pub ctx: usize,
    /// Largest prefill batch in tokens.
    pub batch: usize,
    /// Element type of the KV cache.
    pub kv_type: String,
    /// What the automatic fit keeps free.
    pub reserve: crate::Reserve,
    /// Threads of the CPU backend.
    pub threads: usize,
    /// Kernel table of the CPU backend.
    pub cpu_level: String,
    /// Whether weights are repacked at load.
    pub repack: bool,
}

/// The layer offload of a plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Offload {
    /// Blocks on the device.
    pub gpu_layers: usize,
    /// Blocks of the model.
    pub n_layers: usize,
    /// Whether the tensors outside any block are on the device.
    pub unblocked_on_device: bool,
    /// Why the request was changed.
    pub note: Option<String>,
}

/// The memory of one backend.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct BackendMemory {
    /// `cpu`, `wgpu`, `cuda`.
    pub name: String,
    /// The device in words.
    pub device: String,
    /// The device's answer.
    pub memory: MemoryAnswer,
    /// The budget; `None` is unbounded or unknown.
    pub budget_bytes: Option<u64>,
    /// Registered weights.
    pub weights_bytes: u64,
    /// Keys and values.
    pub kv_bytes: u64,
    /// Buffers of activations, inputs and staging.
    pub pool_bytes: u64,
    /// Working memory of kernels.
    pub scratch_bytes: u64,
    /// What the engine itself holds: a bound in a plan, the real figure in a report.
    pub host_bytes: u64,
    /// Sum of the five categories.
    pub total_bytes: u64,
    /// Budget less total; `None` without a budget.
    pub headroom_bytes: Option<u64>,
    /// The part of the pool that crosses backends.
    pub staging_bytes: u64,
    /// The part of the total that is pages of a file.
    pub mapped_bytes: u64,
    /// The part of the total that is anonymous memory.
    pub anonymous_bytes: u64,
    /// Pool bytes that hold a live value; of a run only.
    pub live_bytes: Option<u64>,
    /// Largest [`live_bytes`](Self::live_bytes); of a run only.
    pub peak_live_bytes: Option<u64>,
    /// Pool buffers that hold none; of a run only.
    pub idle_slots: Option<u64>,
    /// Size classes with at least one buffer; of a run only.
    pub reserved_classes: Option<u64>,
}

/// A device's answer about its memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MemoryAnswer {
    /// `reported`, `query_failed` or `no_device`.
    pub outcome: String,
    /// Free bytes.
    pub free: Option<u64>,
    /// Bytes in all.
    pub total: Option<u64>,
    /// The driver's own error name.
    pub error: Option<String>,
}

/// One block of a plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BlockMemory {
    /// Number of the block.
    pub index: usize,
    /// Where it runs.
    pub backend: String,
    /// Bytes of its weights.
    pub weights_bytes: u64,
    /// Bytes of its keys and values.
    pub kv_bytes: u64,
}

/// What the CPU would hold, with weights repacked or left in the pages of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RepackChoice {
    /// Whether weights are repacked at the load.
    pub repack: bool,
    /// Bytes on the CPU that are pages of a file.
    pub mapped_bytes: u64,
    /// Bytes on the CPU that are anonymous memory.
    pub anonymous_bytes: u64,
    /// Whether all backends would admit it.
    pub fits: bool,
}

/// A request that would be admitted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Alternative {
    /// What to change on the command line.
    pub argv: Vec<String>,
    /// Blocks on the device then.
    pub gpu_layers: usize,
    /// Bytes left in the budget then.
    pub left_bytes: u64,
}

/// Why a plan isn't admitted; bytes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Refusal {
    /// The backend whose budget is too small.
    pub backend: String,
    /// Its weights.
    pub weights: u64,
    /// All that it is charged besides weights.
    pub pooled: u64,
    /// The request that no longer fits.
    pub request: u64,
    /// Its budget.
    pub budget: u64,
    /// The refusal in words.
    pub message: String,
}
