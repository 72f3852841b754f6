//! Where the model runs, and how much memory it may take.

use std::fmt;
use std::str::FromStr;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, ValueEnum};
use minfer_engine::{Options, Reserve, Setting};
use minfer_tensor::{Bytes, DType};

use super::ENGINE;
use crate::{cores, env};

/// More threads than any machine that this is meant for has cores.
const MAX_THREADS: i64 = 512;

/// The options of the engine. Those of the memory policy stay as they were written: the engine judges them, and
/// quotes them when it refuses.
#[derive(Debug, Args)]
pub(crate) struct EngineArgs {
    /// Blocks on the device: a number, auto (as many as fit) or all
    #[arg(long, value_name = "N|auto|all", help_heading = ENGINE, allow_hyphen_values = true, value_parser = lossy())]
    gpu_layers: Option<String>,
    /// Memory of the device that may be used, in MiB
    #[arg(long, value_name = "MIB", help_heading = ENGINE, allow_hyphen_values = true, value_parser = lossy())]
    gpu_mem: Option<String>,
    /// What --gpu-layers auto keeps free of the device
    #[arg(long, value_enum, default_value_t = ReserveArg::Quarter, help_heading = ENGINE)]
    gpu_reserve: ReserveArg,
    /// Memory of the host that may be used, in MiB, or auto: what the system and the container leave
    #[arg(long, value_name = "MIB|auto", help_heading = ENGINE, allow_hyphen_values = true, value_parser = lossy())]
    cpu_mem: Option<String>,
    /// Don't count the pages of the model file for --cpu-mem; as with --no-repack, weights stay there
    #[arg(long, help_heading = ENGINE)]
    allow_paging: bool,
    /// Leave weights in the pages of the model file, which processes share, instead of repacking them for speed
    #[arg(long, help_heading = ENGINE)]
    no_repack: bool,
    /// Context in tokens; by default the model's own, at most 4096
    #[arg(long, value_name = "N", help_heading = ENGINE, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) ctx: Option<u32>,
    /// The most tokens in one batch of prefill
    #[arg(long, value_name = "N", default_value_t = 512, help_heading = ENGINE,
          value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,
    /// Element type of the KV cache
    #[arg(long, value_enum, default_value_t = KvType::F16, help_heading = ENGINE)]
    kv_type: KvType,
    /// Threads of the CPU, 1 to 512; by default one for each core that this process may use
    #[arg(long, value_name = "N", help_heading = ENGINE, value_parser = clap::value_parser!(u32).range(1..=MAX_THREADS))]
    threads: Option<u32>,
    /// auto, cpu, wgpu[:NAME] or cuda[:N]
    #[arg(long, value_name = "DEVICE", default_value_t = Device::Auto, help_heading = ENGINE)]
    pub(crate) device: Device,
    /// Where the settings came from that are judged later.
    #[arg(skip)]
    sources: Sources,
}

/// The flag or the variable of each setting that parsing doesn't judge.
#[derive(Debug, Default)]
struct Sources {
    gpu_layers: String,
    gpu_mem: String,
    cpu_mem: String,
    device: String,
}

impl EngineArgs {
    /// Remembers where each setting came from that is judged later.
    pub(super) fn record_sources(&mut self, matches: &ArgMatches) {
        let source = |id: &str| {
            let long = id.replace('_', "-");
            match matches.value_source(id) {
                Some(ValueSource::EnvVariable) => env::option_twin(&long),
                _ => format!("--{long}"),
            }
        };
        self.sources = Sources {
            gpu_layers: source("gpu_layers"),
            gpu_mem: source("gpu_mem"),
            cpu_mem: source("cpu_mem"),
            device: source("device"),
        };
    }

    /// Where the device was asked for: `--device`, or its variable.
    pub(crate) fn device_source(&self) -> &str {
        &self.sources.device
    }

    /// What the engine is asked for.
    pub(crate) fn options(&self) -> Options {
        let setting = |value: &Option<String>, source: &str| Some(Setting::new(value.as_deref()?, source));
        Options {
            ctx: self.ctx.map(|n| n as usize),
            batch: self.batch as usize,
            kv_type: self.kv_type.dtype(),
            gpu_layers: setting(&self.gpu_layers, &self.sources.gpu_layers),
            gpu_mem: setting(&self.gpu_mem, &self.sources.gpu_mem),
            cpu_mem: setting(&self.cpu_mem, &self.sources.cpu_mem),
            reserve: self.gpu_reserve.reserve(),
            allow_paging: self.allow_paging,
            repack: !self.no_repack,
            caller: Bytes::ZERO,
        }
    }

    /// Threads of the CPU: as asked for, else [`default_threads`].
    pub(crate) fn n_threads(&self) -> usize {
        self.threads.map_or_else(default_threads, |n| n as usize)
    }
}

/// As many threads as there are cores that the affinity mask and the container let this process use at a time.
pub(crate) fn default_threads() -> usize {
    let most = cores::physical().unwrap_or(usize::MAX).min(MAX_THREADS as usize);
    std::thread::available_parallelism().map_or(1, usize::from).min(most)
}

/// A device by its spelling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Device {
    /// The best there is; never a software adapter.
    Auto,
    /// The host.
    Cpu,
    /// A GPU by way of wgpu, and a part of its name.
    Wgpu(Option<String>),
    /// A GPU by way of CUDA, and its number.
    Cuda(Option<u32>),
}

impl FromStr for Device {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, detail) = match text.split_once(':') {
            Some((kind, detail)) => (kind, Some(detail)),
            None => (text, None),
        };
        let number = |n: &str| {
            n.parse().map_err(|_| format!("expected the number of a device after cuda:, found {n:?}"))
        };
        match (kind, detail) {
            ("auto", None) => Ok(Self::Auto),
            ("cpu", None) => Ok(Self::Cpu),
            ("wgpu", name) => Ok(Self::Wgpu(name.map(Into::into))),
            ("cuda", n) => Ok(Self::Cuda(n.map(number).transpose()?)),
            _ => Err("expected auto, cpu, wgpu, wgpu:NAME, cuda or cuda:N".into()),
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Wgpu(None) => f.write_str("wgpu"),
            Self::Wgpu(Some(name)) => write!(f, "wgpu:{name}"),
            Self::Cuda(None) => f.write_str("cuda"),
            Self::Cuda(Some(n)) => write!(f, "cuda:{n}"),
        }
    }
}

/// Spellings of [`Reserve`].
#[derive(Clone, Copy, Debug, ValueEnum)]
enum ReserveArg {
    /// A quarter of the budget
    Quarter,
    /// What the plan needs, to the byte
    Exact,
}

impl ReserveArg {
    fn reserve(self) -> Reserve {
        match self {
            Self::Quarter => Reserve::Quarter,
            Self::Exact => Reserve::Exact,
        }
    }
}

/// Spellings of the KV cache's element types.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum KvType {
    F16,
    F32,
    #[value(name = "q8_0")]
    Q8_0,
}

impl KvType {
    fn dtype(self) -> DType {
        match self {
            Self::F16 => DType::F16,
            Self::F32 => DType::F32,
            Self::Q8_0 => DType::Q8_0,
        }
    }
}

/// Takes any text, also what isn't Unicode: judging it isn't the parser's business.
fn lossy() -> impl TypedValueParser<Value = String> {
    OsStringValueParser::new().map(|text| text.to_string_lossy().into_owned())
}
