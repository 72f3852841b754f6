//! Puts the WGSL of a kernel together: constants, what it shares with others, and its own file.

use std::fmt::Write;

use minfer_graph::{Activation, RopeStyle};
use minfer_tensor::DType;

use super::{Access, Kernel};

macro_rules! wgsl {
    ($name:literal) => {
        include_str!(concat!("../shaders/", $name, ".wgsl"))
    };
}

/// The unpacking primitive of every format: `source_eight(row, group)`.
const FORMATS: [(DType, &[&str]); 11] = [
    (DType::F32, &[wgsl!("formats/f32")]),
    (DType::F16, &[wgsl!("formats/f16")]),
    (DType::BF16, &[wgsl!("formats/bf16")]),
    (DType::Q4_0, &[wgsl!("formats/q4_0")]),
    (DType::Q4_1, &[wgsl!("formats/q4_1")]),
    (DType::Q5_0, &[wgsl!("formats/q5_0")]),
    (DType::Q5_1, &[wgsl!("formats/q5_1")]),
    (DType::Q8_0, &[wgsl!("formats/q8_0")]),
    (DType::Q4K, &[wgsl!("formats/k_scales"), wgsl!("formats/q4_k")]),
    (DType::Q5K, &[wgsl!("formats/k_scales"), wgsl!("formats/q5_k")]),
    (DType::Q6K, &[wgsl!("formats/q6_k")]),
];

/// The files of a format.
pub(super) fn format(dtype: DType) -> Option<&'static [&'static str]> {
    FORMATS.iter().find(|(known, _)| *known == dtype).map(|(_, files)| *files)
}

/// The whole module of a kernel.
pub(super) fn compose(kernel: Kernel) -> String {
    let mut module = Module::new(kernel.workgroup_size());
    match kernel {
        Kernel::MatVec { format, tokens, subgroup } => {
            module.constant("TOKENS", tokens).sum(subgroup).unpack(format, "weights");
            module.add(wgsl!("product")).add(wgsl!("mat_vec"));
        }
        Kernel::MatMul { format } => {
            module.entry(false).unpack(format, "weights");
            module.add(wgsl!("product")).add(wgsl!("mat_mul"));
        }
        Kernel::GetRows { format, table } => {
            let access = if table == Access::Read { "read" } else { "read_write" };
            module
                .entry(false)
                .unpack(format, "table")
                .add(&wgsl!("get_rows").replace("TABLE_ACCESS", access));
        }
        Kernel::RmsNorm { subgroup, .. } => {
            module.sum(subgroup).add(wgsl!("rms_norm"));
        }
        Kernel::Add => {
            module.entry(false).add(wgsl!("element_pairs")).add(wgsl!("add"));
        }
        Kernel::Glu(activation) => {
            module.entry(false).add(wgsl!("element_pairs")).add(wgsl!("sigmoid")).add(glu(activation));
        }
        Kernel::Scale => {
            module.entry(false).add(wgsl!("elements")).add(wgsl!("scale"));
        }
        Kernel::Softcap => {
            module.entry(false).add(wgsl!("elements")).add(wgsl!("tanh")).add(wgsl!("softcap"));
        }
        Kernel::Rope { style, factors } => {
            module.entry(false).add(wgsl!("rope")).add(places(style)).add(division(factors));
        }
        Kernel::WriteRows { state } => {
            module.entry(false).add(wgsl!("half_bits")).add(wgsl!("write_rows")).add(write_row(state));
        }
        Kernel::Attention { state, head_dim, subgroup } => {
            module.constant("HEAD_DIM", head_dim).constant("HEAD_BYTES", head_bytes(state, head_dim));
            module.eights(subgroup).unpack(state, "keys").unpack(state, "values");
            module.add(wgsl!("tanh")).add(wgsl!("attention"));
        }
    }
    module.text
}

/// Bytes of a head in a row of a state. Panics unless it is whole blocks.
fn head_bytes(state: DType, head_dim: u32) -> u64 {
    let bytes = usize::try_from(head_dim).ok().and_then(|cols| state.row_bytes(cols));
    bytes.expect("heads of states are whole blocks").get()
}

fn glu(activation: Activation) -> &'static str {
    match activation {
        Activation::Silu => wgsl!("glu_silu"),
        Activation::GeluTanh => wgsl!("glu_gelu_tanh"),
    }
}

fn places(style: RopeStyle) -> &'static str {
    match style {
        RopeStyle::Adjacent => wgsl!("rope_adjacent"),
        RopeStyle::Halves => wgsl!("rope_halves"),
    }
}

fn division(factors: bool) -> &'static str {
    if factors { wgsl!("rope_factors") } else { wgsl!("rope_plain") }
}

fn write_row(state: DType) -> &'static str {
    match state {
        DType::F32 => wgsl!("write_rows_f32"),
        DType::F16 => wgsl!("write_rows_f16"),
        DType::Q8_0 => wgsl!("write_rows_q8_0"),
        other => panic!("no state is stored as {other}"),
    }
}

/// A module in the making.
struct Module {
    text: String,
    unpacks: bool,
}

impl Module {
    fn new(workgroup_size: u32) -> Self {
        let mut module = Self { text: String::new(), unpacks: false };
        module.constant("WORKGROUP", workgroup_size).add(wgsl!("prelude"));
        module
    }

    fn add(&mut self, text: &str) -> &mut Self {
        self.text.push_str(text);
        self.text.push('\n');
        self
    }

    fn constant(&mut self, name: &str, value: impl std::fmt::Display) -> &mut Self {
        let written = writeln!(self.text, "const {name}: u32 = {value}u;");
        debug_assert!(written.is_ok(), "a string takes any text");
        self
    }

    /// The entry point, which calls `run`.
    fn entry(&mut self, subgroup: bool) -> &mut Self {
        self.add(if subgroup { wgsl!("entry_subgroup") } else { wgsl!("entry") })
    }

    /// The entry point and `workgroup_sum`.
    fn sum(&mut self, subgroup: bool) -> &mut Self {
        self.entry(subgroup).add(if subgroup { wgsl!("sum_subgroup") } else { wgsl!("sum") })
    }

    /// The entry point and `sum_of_eight`.
    fn eights(&mut self, subgroup: bool) -> &mut Self {
        self.entry(false).add(if subgroup { wgsl!("eights_subgroup") } else { wgsl!("eights") })
    }

    /// `NAME_eight` for the binding `name`, an array of words.
    fn unpack(&mut self, dtype: DType, name: &str) -> &mut Self {
        if !std::mem::replace(&mut self.unpacks, true) {
            self.add(wgsl!("bits"));
        }
        let format = format(dtype).unwrap_or_else(|| panic!("no weight is stored as {dtype}"));
        for file in [wgsl!("blocks")].iter().chain(format) {
            self.add(&file.replace("source", name));
        }
        self
    }
}
