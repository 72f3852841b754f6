use minfer_engine::{
    Alternative, BlockMemory, MemoryAnswer, ModelInfo, Offload, Refusal, RepackChoice, Request, Reserve,
};

use super::*;

const MIB: u64 = 1 << 20;

fn base(name: &str, n_layers: usize) -> Plan {
    Plan {
        schema_version: Plan::SCHEMA_VERSION,
        model: ModelInfo {
            path: format!("/models/{name}").into(),
            architecture: "qwen3".into(),
            n_layers,
            file_bytes: 4795 * MIB,
        },
        request: Request {
            gpu_layers: "auto".into(),
            source: "--gpu-layers".into(),
            ctx: 16384,
            batch: 512,
            kv_type: "F16".into(),
            reserve: Reserve::Exact,
            threads: 8,
            cpu_level: "avx2".into(),
            repack: true,
        },
        offload: Offload { gpu_layers: 0, n_layers, unblocked_on_device: false, note: None },
        backends: vec![],
        blocks: (0..n_layers)
            .map(|index| BlockMemory {
                index,
                backend: "cpu".into(),
                weights_bytes: 110 * MIB,
                kv_bytes: 64 * MIB,
            })
            .collect(),
        repack_choices: vec![],
        kv_bytes_per_token: 144 << 10,
        alternatives: vec![],
        fits: true,
        refusal: None,
        notes: vec![],
    }
}

fn device() -> BackendMemory {
    BackendMemory {
        name: "cuda".into(),
        device: "RTX 4060".into(),
        memory: MemoryAnswer {
            outcome: "reported".into(),
            free: Some(7420 * MIB),
            total: Some(8188 * MIB),
            error: None,
        },
        budget_bytes: Some(5565 * MIB),
        weights_bytes: 3300 * MIB,
        kv_bytes: 1920 * MIB,
        pool_bytes: 326 * MIB,
        total_bytes: 5546 * MIB,
        headroom_bytes: Some(19 * MIB),
        staging_bytes: 16 * MIB,
        ..BackendMemory::default()
    }
}

fn host() -> BackendMemory {
    BackendMemory {
        name: "cpu".into(),
        device: "Ryzen 7".into(),
        memory: MemoryAnswer { outcome: "no_device".into(), ..MemoryAnswer::default() },
        weights_bytes: 1492 * MIB,
        kv_bytes: 384 * MIB,
        pool_bytes: 100 * MIB,
        scratch_bytes: 20 * MIB,
        host_bytes: 1000,
        total_bytes: 1996 * MIB + 1000,
        mapped_bytes: 1492 * MIB,
        anonymous_bytes: 504 * MIB + 1000,
        ..BackendMemory::default()
    }
}

pub(in crate::render) fn with_device() -> Plan {
    let mut plan = base("Qwen3-8B-Q4_K_M.gguf", 36);
    plan.backends = vec![device(), host()];
    plan.offload.gpu_layers = 30;
    plan.blocks.iter_mut().take(30).for_each(|block| block.backend = "cuda".into());
    plan.alternatives = vec![
        Alternative { argv: vec!["--ctx".into(), "8192".into()], gpu_layers: 35, left_bytes: MIB },
        Alternative { argv: vec!["--gpu-mem".into(), "7000".into()], gpu_layers: 35, left_bytes: 420 * MIB },
    ];
    plan
}

pub(in crate::render) fn host_only() -> Plan {
    let mut plan = base("Qwen3-8B-Q4_K_M.gguf", 36);
    plan.backends = vec![host()];
    plan
}

fn refused() -> Plan {
    let mut plan = host_only();
    plan.backends[0].budget_bytes = Some(1000 * MIB);
    plan.fits = false;
    plan.request.repack = false;
    let choice = RepackChoice { repack: true, mapped_bytes: 0, anonymous_bytes: 1996 * MIB, fits: false };
    let without =
        RepackChoice { repack: false, mapped_bytes: 1492 * MIB, anonymous_bytes: 504 * MIB, fits: false };
    plan.repack_choices = vec![choice, without];
    plan.refusal = Some(Refusal {
        backend: "cpu".into(),
        weights: 1492 * MIB,
        pooled: 0,
        request: 504 * MIB,
        budget: 1000 * MIB,
        message: "cpu: weights 1492.00 MiB + pooled 0 MiB + this request 504.00 MiB exceed the budget of 1000.00 MiB"
            .into(),
    });
    plan.alternatives =
        vec![Alternative { argv: vec!["--allow-paging".into()], gpu_layers: 0, left_bytes: 496 * MIB }];
    plan
}

const UTF8: Style = Style { color: false, utf8: true };
const ASCII: Style = Style { color: false, utf8: false };

#[test]
fn a_plan_with_a_device() {
    assert_eq!(plan_table(&with_device(), UTF8), include_str!("device.txt"));
}

#[test]
fn a_plan_without_a_device_in_ascii() {
    assert_eq!(plan_table(&host_only(), ASCII), include_str!("host.txt"));
}

#[test]
fn a_refusal_says_how_much_is_missing_and_what_would_do() {
    assert_eq!(plan_table(&refused(), UTF8), include_str!("refused.txt"));
}

#[test]
fn every_line_fits_80_columns_whatever_the_names() {
    let mut plan = with_device();
    plan.model.path = "x".repeat(300).into();
    plan.model.architecture = "y ".repeat(80);
    plan.backends[0].device = "z".repeat(300);
    plan.backends[1].device = "a middling name of a processor with cores".into();
    plan.backends[0].memory.error = Some("VK_ERROR_OUT_OF_DATE_KHR of the driver".into());
    plan.notes = vec!["word ".repeat(100)];
    for line in plan_table(&plan, UTF8).lines() {
        assert!(line.chars().count() <= COLUMNS, "{line}");
    }
}

#[test]
fn many_blocks_are_counted() {
    let mut plan = host_only();
    plan.blocks = base("x", 61).blocks;
    plan.blocks[0].backend = "cuda".into();
    plan.backends.insert(0, device());
    assert!(plan_table(&plan, UTF8).contains("blocks   G×1 C×60  1 CUDA, 60 CPU + embed, head\n"));
    assert!(plan_table(&plan, ASCII).contains("blocks   Gx1 Cx60  "));
}

#[test]
fn what_the_file_says_reaches_no_terminal_raw() {
    let mut plan = host_only();
    plan.model.architecture = "llama\u{1b}[2J".into();
    plan.model.path = "a\nb.gguf".into();
    let page = plan_table(&plan, Style { color: false, utf8: true });
    assert!(page.contains("llama\\u{1b}[2J") && page.contains("a\\nb.gguf") && !page.contains('\u{1b}'));
}
