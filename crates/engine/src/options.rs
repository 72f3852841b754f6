//! What a load is asked for: plain values with the source of each, so that a refusal can quote it.

use minfer_graph::OffloadRequest;
use minfer_tensor::{Bytes, DType};
use serde::Serialize;

use crate::Error;

/// The spelling of a memory setting and where it came from: a flag or an environment variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// As it was written.
    pub value: String,
    /// `--gpu-layers`, `MINFER_GPU_LAYERS`.
    pub source: String,
}

impl Setting {
    /// A setting with its source.
    pub fn new(value: impl Into<String>, source: impl Into<String>) -> Self {
        Self { value: value.into(), source: source.into() }
    }

    /// A budget in whole MiB, rounded down.
    pub(crate) fn of_mib(bytes: Bytes, source: &str) -> Self {
        Self::new((bytes.get() / Bytes::MIB.get()).to_string(), source)
    }

    fn refuse(&self, expected: &str) -> Error {
        Error::Refused(format!(
            "{}: expected {expected}, found \"{}\"",
            self.source,
            self.value.escape_debug()
        ))
    }
}

/// Reads how many blocks go to the device (rule O2): a whole number, `auto`, `all`, or empty for `all`. Anything else is
/// refused, with its source.
pub fn parse_request(setting: &Setting) -> Result<OffloadRequest, Error> {
    let digits = !setting.value.is_empty() && setting.value.bytes().all(|b| b.is_ascii_digit());
    match setting.value.as_str() {
        "" => Ok(OffloadRequest::Unset),
        "all" => Ok(OffloadRequest::All),
        "auto" => Ok(OffloadRequest::Auto),
        // More digits than 32 bits hold is still more blocks than any model has: it clamps like any large number.
        n if digits => Ok(OffloadRequest::Blocks(n.parse().unwrap_or(u32::MAX))),
        _ => Err(setting.refuse("a whole number of blocks, auto or all")),
    }
}

/// Reads a budget in whole MiB (rule A3). Anything else, and what overflows, is refused, with its source.
pub fn parse_mib(setting: &Setting) -> Result<Bytes, Error> {
    let digits = !setting.value.is_empty() && setting.value.bytes().all(|b| b.is_ascii_digit());
    let mib: Option<u64> = digits.then(|| setting.value.parse().ok()).flatten();
    mib.and_then(|mib| Bytes::MIB.checked_mul(mib)).ok_or_else(|| setting.refuse("a whole number of MiB"))
}

/// The budget of the host (rules A3, B5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuMem {
    /// What the system and the container leave.
    Auto,
    /// This many bytes.
    Limit(Bytes),
}

impl CpuMem {
    /// Reads a setting: a whole number of MiB, or `auto`.
    pub fn parse(setting: &Setting) -> Result<Self, Error> {
        match setting.value.as_str() {
            "auto" => Ok(Self::Auto),
            _ => parse_mib(setting)
                .map(Self::Limit)
                .map_err(|_| setting.refuse("a whole number of MiB, or auto")),
        }
    }
}

/// How much of a device's budget the automatic fit keeps free (rule B2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Reserve {
    /// A quarter of the budget.
    #[default]
    Quarter,
    /// What the plan needs, to the byte.
    Exact,
}

/// All that a load is asked for.
#[derive(Clone, Debug)]
pub struct Options {
    /// Positions of the context; `None` is the smaller of the model's own and 4096.
    pub ctx: Option<usize>,
    /// Largest prefill batch in tokens; at least 1.
    pub batch: usize,
    /// Element type of the KV cache: F16, F32 or Q8_0.
    pub kv_type: DType,
    /// Blocks on the device; `None` where nothing was said.
    pub gpu_layers: Option<Setting>,
    /// Budget of the device in MiB.
    pub gpu_mem: Option<Setting>,
    /// Budget of the host in MiB, or `auto`.
    pub cpu_mem: Option<Setting>,
    /// What the automatic fit keeps free.
    pub reserve: Reserve,
    /// Exempts the pages of the mapped file from the host's budget, and leaves weights there.
    pub allow_paging: bool,
    /// Repacks the weights of the CPU at the load, into memory of its own: faster, and the file's pages aren't needed
    /// any more. Without it they stay pages of the file, which processes share.
    pub repack: bool,
    /// What the caller itself holds besides, charged to the host: a text that is scored and its ids.
    pub caller: Bytes,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            ctx: None,
            batch: 512,
            kv_type: DType::F16,
            gpu_layers: None,
            gpu_mem: None,
            cpu_mem: None,
            reserve: Reserve::Quarter,
            allow_paging: false,
            repack: true,
            caller: Bytes::ZERO,
        }
    }
}

impl Options {
    /// The context that is used where none was asked for, unless the model's own is smaller.
    pub const DEFAULT_CTX: usize = 4096;

    /// Whether weights are repacked: pages that may be paged out are left where they are.
    pub(crate) fn repacks(&self) -> bool {
        self.repack && !self.allow_paging
    }

    /// Reads every setting of the memory policy, so that a bad one is known before any work.
    ///
    /// # Errors
    /// [`Error::Refused`] for the first that can't be read.
    pub fn check(&self) -> Result<(), Error> {
        self.gpu_layers.as_ref().map(parse_request).transpose()?;
        self.gpu_mem.as_ref().map(parse_mib).transpose()?;
        self.cpu_mem.as_ref().map(CpuMem::parse).transpose()?;
        Ok(())
    }

    /// Whether as many blocks as fit were asked for.
    pub(crate) fn is_auto(&self) -> bool {
        self.gpu_layers.as_ref().is_some_and(|s| matches!(parse_request(s), Ok(OffloadRequest::Auto)))
    }

    /// Positions of the context for a model that was trained on `n_ctx_train`.
    pub fn n_ctx(&self, n_ctx_train: usize) -> usize {
        self.ctx.unwrap_or_else(|| n_ctx_train.min(Self::DEFAULT_CTX))
    }

    /// Largest number of tokens in one run: no more than the context holds.
    pub fn n_batch(&self, n_ctx: usize) -> usize {
        self.batch.clamp(1, n_ctx.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(value: &str) -> Setting {
        Setting::new(value, "--gpu-layers")
    }

    #[test]
    fn o2_gpu_layers_take_numbers_and_two_words() {
        use OffloadRequest::{All, Auto, Blocks, Unset};
        let cases = [
            ("", Unset),
            ("all", All),
            ("auto", Auto),
            ("12", Blocks(12)),
            ("99999999999999999999999", Blocks(u32::MAX)),
        ];
        for (spelling, request) in cases {
            assert_eq!(parse_request(&set(spelling)).unwrap(), request, "{spelling}");
        }
    }

    #[test]
    fn o2_a_bad_setting_is_quoted_with_its_source() {
        for bad in ["-1", "4.5", "12abc", "banana", " 3", "+3", "\u{1b}[2J"] {
            let message = parse_request(&set(bad)).unwrap_err().to_string();
            assert!(
                message.contains("--gpu-layers") && message.contains(&*bad.escape_debug().to_string()),
                "{message}"
            );
        }
    }

    #[test]
    fn a_budget_is_whole_mib_that_fit_64_bits() {
        let mib = |v: &str| parse_mib(&Setting::new(v, "--gpu-mem"));
        assert_eq!(mib("0").unwrap(), Bytes::ZERO);
        assert_eq!(mib("3").unwrap(), Bytes::new(3 << 20));
        assert_eq!(mib("17592186044415").unwrap(), Bytes::new(17_592_186_044_415 << 20));
        for bad in ["17592186044416", "99999999999999999999999", "-1", "1.5", "", "1GiB"] {
            assert!(mib(bad).unwrap_err().to_string().contains("--gpu-mem"), "{bad}");
        }
        assert_eq!(CpuMem::parse(&Setting::new("auto", "--cpu-mem")).unwrap(), CpuMem::Auto);
    }
}
