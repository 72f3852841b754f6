//! What a loaded engine promises: bits that don't depend on batch or threads, a cache that ends where it should, and a
//! report that equals the plan.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod common;

use std::path::PathBuf;

use common::{ARCHS, TestMachine, arch, host, load, options, score};
use minfer_engine::{
    BackendMemory, BenchOptions, CancelFlag, Engine, Error, ErrorKind, ModelFile, Options, Planned, Setting,
    plan,
};
use minfer_tensor::{Bytes, DType};

const IDS: [u32; 40] = {
    let mut ids = [0; 40];
    let mut i = 0;
    while i < 40 {
        ids[i] = (i as u32 * 37 + 11) % 128;
        i += 1;
    }
    ids
};

/// Every family with floats as keys and values, and those of two sizes of heads with blocks.
fn configurations() -> impl Iterator<Item = (&'static str, DType)> {
    let blocks = [("qwen3-dense", DType::Q8_0), ("gemma3-dense", DType::Q8_0)];
    ARCHS.map(|name| (name, DType::F32)).into_iter().chain(blocks)
}

/// All logits of all positions, as bits.
fn bits(engine: &mut Engine) -> Vec<(u32, u32)> {
    let (_, positions) = score(engine, &IDS, 128);
    positions.iter().flat_map(|p| p.top.iter().map(|&(id, logit)| (id, logit.to_bits()))).collect()
}

#[test]
fn logits_do_not_depend_on_batch_or_threads() {
    for (name, kv_type) in configurations() {
        let load = |batch, threads| load(&arch(name), &Options { kv_type, ..options(batch) }, threads);
        let expected = bits(&mut load(1, 1));
        for (batch, threads) in [(1, 2), (7, 1), (8, 3), (32, 2), (512, 1), (512, 2)] {
            assert!(bits(&mut load(batch, threads)) == expected, "{name} {kv_type} {batch} {threads}");
        }
    }
}

#[test]
fn b4_the_report_of_a_run_is_the_plan_to_the_byte() {
    for ((name, kv_type), batch) in configurations().flat_map(|c| [1, 7, 512].map(|batch| (c, batch))) {
        let (host, options) = (host(2), Options { kv_type, ..options(batch) });
        let planned = plan(&ModelFile::open(&arch(name)).unwrap(), &options, &host).unwrap();
        let mut engine = load(&arch(name), &options, 2);
        assert_eq!(engine.plan().backends, planned.backends);
        score(&mut engine, &IDS, 1);
        engine
            .bench(BenchOptions { prompt: 30, generate: 8, depth: 5, limits: false }, &CancelFlag::new())
            .unwrap();
        let (planned, held) = (&planned.backends[0], &engine.memory_report().backends[0]);
        assert_eq!(categories(planned), categories(held), "{name} {kv_type} {batch}");
        assert!(
            held.host_bytes <= planned.host_bytes,
            "{name}: {} > {}",
            held.host_bytes,
            planned.host_bytes
        );
        for b in [planned, held] {
            let sum = b.weights_bytes + b.kv_bytes + b.pool_bytes + b.scratch_bytes + b.host_bytes;
            assert_eq!(b.total_bytes, sum);
            assert_eq!(b.mapped_bytes + b.anonymous_bytes, b.total_bytes);
        }
    }
}

#[test]
fn b4_what_the_caller_holds_is_planned_and_reported() {
    let host_bytes = |caller: u64| {
        let options = Options { caller: Bytes::new(caller), ..options(8) };
        let engine = load(&arch("llama-dense"), &options, 1);
        [engine.plan(), &engine.memory_report()].map(|plan| plan.backends[0].host_bytes)
    };
    assert_eq!(host_bytes(1000), host_bytes(0).map(|bytes| bytes + 1000));
}

fn categories(b: &BackendMemory) -> [u64; 6] {
    [b.weights_bytes, b.kv_bytes, b.pool_bytes, b.scratch_bytes, b.staging_bytes, b.mapped_bytes]
}

#[test]
fn b4_a_quantized_cache_takes_34_bytes_for_32_elements_and_no_copy() {
    let host = host(2);
    let file = ModelFile::open(&arch("qwen3-dense")).unwrap();
    let held = |kv_type| {
        let plan = plan(&file, &Options { kv_type, ..options(8) }, &host).unwrap();
        let cpu = &plan.backends[0];
        (cpu.kv_bytes, cpu.scratch_bytes, cpu.pool_bytes, plan.kv_bytes_per_token)
    };
    let ((f32_kv, scratch, pool, f32_token), q8_0) = (held(DType::F32), held(DType::Q8_0));
    let blocks = |bytes: u64| bytes / 4 / 32 * 34;
    assert_eq!(q8_0, (blocks(f32_kv), scratch, pool, blocks(f32_token)));
}

/// A model with sixteen elements a head: the same tensors, other metadata.
fn small_heads(dir: &tempfile::TempDir) -> PathBuf {
    let mut file = std::fs::read(arch("qwen2-dense")).unwrap();
    for key in [
        "qwen2.attention.head_count",
        "qwen2.attention.head_count_kv",
        "qwen2.attention.key_length",
        "qwen2.attention.value_length",
        "qwen2.rope.dimension_count",
    ] {
        let name: Vec<u8> = (key.len() as u64).to_le_bytes().into_iter().chain(key.bytes()).collect();
        let at = file.windows(name.len()).position(|window| window == name).unwrap();
        // Behind the key: the tag of a u32, then the number.
        file[at + name.len() + 4..][..4].copy_from_slice(&16u32.to_le_bytes());
    }
    let path = dir.path().join("small-heads.gguf");
    std::fs::write(&path, file).unwrap();
    path
}

#[test]
fn heads_that_are_no_whole_blocks_are_refused_before_loading() {
    let host = host(1);
    let options = Options { kv_type: DType::Q8_0, ..options(8) };
    let dir = tempfile::tempdir().unwrap();
    let file = ModelFile::open(&small_heads(&dir)).unwrap();
    let error = plan(&file, &options, &host).unwrap_err();
    for word in ["qwen2.attention.key_length", "16 elements", "Q8_0", "32"] {
        assert!(error.to_string().contains(word), "{error}");
    }
    assert_eq!(error.kind(), ErrorKind::Usage);
    assert_eq!(Planned::new(file, &options, &host).unwrap_err().kind(), ErrorKind::Usage);
}

#[test]
fn a10_decoding_reuses_one_graph() {
    let mut engine = load(&arch("llama-dense"), &options(32), 1);
    let bench = |engine: &mut Engine| {
        engine
            .bench(BenchOptions { prompt: 0, generate: 20, depth: 1, limits: false }, &CancelFlag::new())
            .unwrap();
    };
    bench(&mut engine);
    let before = engine.graph_stats();
    bench(&mut engine);
    let after = engine.graph_stats();
    assert_eq!(after.builds, before.builds);
    assert!(after.reuses > before.reuses + 19);
}

#[test]
fn b3_a_refusal_comes_before_loading_and_its_alternatives_are_admitted() {
    let machine = TestMachine::new(1);
    let host = machine.host();
    let file = ModelFile::open(&arch("llama-dense")).unwrap();
    let needed = plan(&file, &options(32), &host).unwrap().backends[0].total_bytes;
    let with =
        |mib: u64| Options { cpu_mem: Some(Setting::new(mib.to_string(), "--cpu-mem")), ..options(32) };
    let fits = needed.div_ceil(1 << 20);
    assert!(plan(&file, &with(fits), &host).unwrap().fits);
    let refused = Planned::new(file, &with(fits - 1), &host).unwrap();
    assert!(!refused.plan().fits && refused.plan().refusal.is_some());
    let error = Engine::load(refused, &machine, &mut |_| panic!("loaded"));
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Refused);
}

#[test]
fn b3_the_largest_kv_type_that_fits_is_proposed() {
    let host = host(1);
    let file = ModelFile::open(&arch("qwen3-dense")).unwrap();
    let with = |kv_type, cpu_mem| Options { ctx: Some(1 << 14), kv_type, cpu_mem, ..options(8) };
    let mib = |kv_type| {
        let planned = plan(&file, &with(kv_type, None), &host).unwrap();
        planned.backends[0].total_bytes.div_ceil(1 << 20).to_string()
    };
    for (fits, name) in [(DType::F16, "f16"), (DType::Q8_0, "q8_0")] {
        let cpu_mem = Some(Setting::new(mib(fits), "--cpu-mem"));
        let refused = plan(&file, &with(DType::F32, cpu_mem.clone()), &host).unwrap();
        assert!(refused.alternatives.iter().any(|a| a.argv == ["--kv-type", name]), "{name}");
        assert!(plan(&file, &with(fits, cpu_mem), &host).unwrap().fits);
    }
}

#[test]
fn tokens_beyond_the_context_or_the_vocabulary_are_refused() {
    let mut engine = load(&arch("llama-dense"), &options(32), 1);
    let long = BenchOptions { prompt: 65, generate: 0, depth: 0, limits: false };
    let error = engine.bench(long, &CancelFlag::new()).unwrap_err();
    assert!(matches!(error, Error::PromptTooLong { .. }), "{error}");
    let error = engine.score(&[5, 128], 1, &CancelFlag::new(), &mut |_| panic!("scored")).unwrap_err();
    assert!(matches!(error, Error::Token { id: 128, n_vocab: 128 }), "{error}");
}

#[test]
fn a_text_longer_than_the_context_is_scored_in_windows() {
    let mut engine = load(&arch("llama-dense"), &Options { ctx: Some(16), ..options(8) }, 1);
    let (scored, positions) = score(&mut engine, &IDS, 1);
    assert_eq!((scored.n_tokens, scored.windows, positions.len()), (40, 3, 40));
    assert!(positions[..39].iter().all(|p| p.logprob.is_some()) && positions[39].logprob.is_none());
    let nll = -positions.iter().filter_map(|p| p.logprob).sum::<f64>();
    assert_eq!(scored.mean_nll, Some(nll / 39.0));
}

#[test]
fn cancelled_work_ends_at_the_last_committed_batch() {
    let mut engine = load(&arch("llama-dense"), &options(8), 1);
    let cancel = CancelFlag::new();
    let mut done = 0;
    let scored = engine.score(&IDS, 1, &cancel, &mut |_| {
        done += 1;
        if done >= 12 {
            cancel.cancel();
        }
    });
    let scored = scored.unwrap();
    assert!(scored.cancelled && scored.n_tokens == 16 && done == 16 && engine.committed() == &IDS[..16]);
}

#[test]
fn a_file_that_is_cut_while_mapped_ends_in_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    std::fs::copy(arch("llama-dense"), &path).unwrap();
    let mut engine = load(&path, &options(8), 2);
    score(&mut engine, &IDS, 1);
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(8192).unwrap();
    let error = engine.score(&IDS, 1, &CancelFlag::new(), &mut |_| {}).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Model, "{error}");
}
