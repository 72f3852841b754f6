//! Smoke run.
use std::sync::Arc;
use minfer_backend_cpu::{CpuBackend, CpuSpec};
use minfer_engine::*;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let threads: usize = std::env::var("T").map_or(2, |t| t.parse().unwrap());
    let spec = CpuSpec::detect(threads);
    let host = Host { cpu: Arc::new(spec.clone()), threads, cpu_level: spec.kernels().name().to_string() };
    let t = std::time::Instant::now();
    let file = ModelFile::open(std::path::Path::new(&args[1])).unwrap();
    println!("open {:?}", t.elapsed());
    let opts = Options::default();
    let plan = plan(&file, &opts, &host).unwrap();
    println!("plan {:?}", t.elapsed());
    println!("{}", serde_json::to_string(&plan.backends[0]).unwrap());
    let backend = CpuBackend::new(spec).unwrap();
    let mut e = Engine::load(file, &opts, &host, vec![Box::new(backend)], &mut |_| {}).unwrap();
    println!("load {:?}", t.elapsed());
    let ids = e.encode(&args[2]).unwrap();
    println!("{ids:?} {:?}", t.elapsed());
    let mut p = e.model_file().sampling().unwrap(); p.temperature = 0.0;
    let g = e.generate(&ids, &GenerateOptions { max_tokens: Some(40), sampling: p, stops: vec![], ignore_eos: false }, &CancelFlag::new(), &mut |_| {}).unwrap();
    println!("{} {:?}", g.text, g);
    println!("{}", serde_json::to_string(&e.memory_report().backends[0]).unwrap());
    for _ in 0..3 { let b = e.bench(BenchOptions { prompt: 512, generate: 64, depth: 0 }, &CancelFlag::new()).unwrap();
    println!("pp {:.1} tg {:.1}", 512.0 / b.prompt.unwrap().as_secs_f64(), 64.0 / b.generate.unwrap().as_secs_f64()); }
}
