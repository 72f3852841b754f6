//! Loading, sessions, KV cache and decoding over any backend.
//!
//! - [`ModelFile`]: a file that was read but not loaded; enough for a [`Plan`].
//! - [`Planned`]: a file with its plan, ready for the load.
//! - [`Engine`]: a loaded model with one sequence: generates, scores, measures.
//! - [`Conversation`]: messages over an engine, with the cache kept from turn to turn.

mod alternatives;
mod bench;
mod context;
mod conversation;
mod engine;
mod error;
mod generate;
mod host_memory;
mod machine;
mod model_file;
mod options;
mod plan;
mod planned;
mod planner;
mod report;
mod resolver;
mod score;
mod source;

pub use minfer_graph::{CancelFlag, Demand};

pub use bench::{BenchDemand, BenchOptions, BenchRun, Limits, Measured};
pub use conversation::{Conversation, Turn};
pub use engine::{Engine, LoadProgress};
pub use error::{Error, ErrorKind};
pub use generate::{Event, GenerateOptions, Generation, StopReason};
pub use host_memory::{host_memory, host_memory_under, room};
pub use machine::{Host, HostDevice, Machine};
pub use model_file::{ModelFile, missing_note};
pub use options::{CpuMem, Options, Reserve, Setting, parse_mib, parse_request};
pub use plan::{
    Alternative, BackendMemory, BlockMemory, MemoryAnswer, ModelInfo, Offload, Plan, Refusal, RepackChoice,
    Request,
};
pub use planned::Planned;
pub use planner::plan;
pub use score::{Score, ScoredPosition};
