use super::*;

fn params() -> SamplingParams {
    SamplingParams {
        temperature: 1.0,
        top_k: 0,
        top_p: 1.0,
        min_p: 0.0,
        seed: Some(7),
        ..SamplingParams::default()
    }
}

fn draws(params: SamplingParams, logits: &[f32], n: usize) -> Vec<TokenId> {
    let mut sampler = Sampler::new(params, logits.len()).unwrap();
    (0..n).map(|_| sampler.sample(logits, &[]).unwrap()).collect()
}

#[test]
fn greedy_takes_the_first_maximum() {
    let greedy = SamplingParams { temperature: 0.0, ..params() };
    assert_eq!(draws(greedy, &[1.0, 5.0, 5.0, -1.0], 3), [1, 1, 1]);
}

#[test]
fn draws_follow_the_softmax() {
    let logits = [0.0, 1.0, 2.0];
    let n = 20_000;
    let drawn = draws(params(), &logits, n);
    let total: f32 = logits.iter().map(|l| l.exp()).sum();
    for (id, logit) in logits.iter().enumerate() {
        let expected = logit.exp() / total;
        let found = drawn.iter().filter(|&&d| d as usize == id).count() as f32 / n as f32;
        assert!((found - expected).abs() < 0.015, "{id}: {found} instead of {expected}");
    }
}

#[test]
fn truncation_excludes() {
    let logits = [4.0, 3.0, 2.0, 1.0, 0.0];
    let most = |params| draws(params, &logits, 2000).into_iter().max().unwrap();
    assert_eq!(most(SamplingParams { top_k: 2, ..params() }), 1);
    // The probabilities are 0.64, 0.23, 0.09, 0.03, 0.01.
    assert_eq!(most(SamplingParams { top_p: 0.8, ..params() }), 1);
    assert_eq!(most(SamplingParams { top_p: 0.0, ..params() }), 0);
    assert_eq!(most(SamplingParams { min_p: 0.1, ..params() }), 2);
    assert_eq!(most(SamplingParams { min_p: 1.0, ..params() }), 0);
}

#[test]
fn a_wide_nucleus_is_the_sorted_one() {
    let logits: Vec<f32> =
        (0..5000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 20) as f32 / 1024.0).collect();
    let mut all: Vec<Candidate> = (0..).zip(&logits).map(|(id, &logit)| Candidate { logit, id }).collect();
    let mut sorted = all.clone();
    sorted.sort_unstable_by(best_first);
    let kept = nucleus(&mut all, 0.9);
    assert!(kept > 128 && kept < 5000);
    assert!(all[..kept].iter().zip(&sorted).all(|(a, b)| a.id == b.id));
}

#[test]
fn the_penalty_counts_once_and_only_in_its_window() {
    let greedy = SamplingParams { temperature: 0.0, repeat_penalty: 1.5, repeat_last_n: 2, ..params() };
    let mut sampler = Sampler::new(greedy, 3).unwrap();
    let logits = [2.0, 1.5, 1.4];
    // Once: 2 / 1.5 = 1.33; twice would be 0.89.
    assert_eq!(sampler.sample(&logits, &[0, 0]).unwrap(), 1);
    assert_eq!(sampler.sample(&[2.0, 1.3, 1.0], &[0, 0]).unwrap(), 0);
    assert_eq!(sampler.sample(&logits, &[0, 1, 1]).unwrap(), 0);
    assert_eq!(sampler.sample(&[-1.0, -1.2, -9.0], &[0]).unwrap(), 1);
    assert_eq!(sampler.sample(&logits, &[u32::MAX]).unwrap(), 0);
}

#[test]
fn a_seed_repeats_and_is_reported() {
    let logits: Vec<f32> = (0..100).map(|i| (i % 7) as f32).collect();
    assert_eq!(draws(params(), &logits, 50), draws(params(), &logits, 50));
    let free = Sampler::new(SamplingParams { seed: None, ..params() }, 100).unwrap();
    let seeded = SamplingParams { seed: Some(free.seed()), ..params() };
    assert_eq!(Sampler::new(seeded, 100).unwrap().seed(), free.seed());
}

#[test]
fn bad_logits_are_refused() {
    let mut sampler = Sampler::new(params(), 2).unwrap();
    assert!(matches!(sampler.sample(&[0.0, f32::NAN], &[]), Err(Error::NotFinite { index: 1, .. })));
    assert!(matches!(sampler.sample(&[f32::INFINITY, 0.0], &[]), Err(Error::NotFinite { index: 0, .. })));
    assert_eq!(sampler.sample(&[0.0], &[]), Err(Error::WrongLength { found: 1, expected: 2 }));
    assert_eq!(sampler.sample(&[], &[]), Err(Error::WrongLength { found: 0, expected: 2 }));
}

#[test]
fn bad_parameters_are_refused() {
    for bad in [
        SamplingParams { temperature: -0.1, ..params() },
        SamplingParams { temperature: f32::NAN, ..params() },
        SamplingParams { top_p: 1.1, ..params() },
        SamplingParams { min_p: -1.0, ..params() },
        SamplingParams { repeat_penalty: 0.0, ..params() },
    ] {
        assert!(matches!(Sampler::new(bad, 8), Err(Error::OutOfRange { .. })), "{bad:?}");
    }
    assert_eq!(Sampler::new(params(), 0).unwrap_err(), Error::NoLogits);
}

#[test]
fn extremes_give_a_token() {
    let hot = SamplingParams { temperature: f32::MAX, ..params() };
    let cold = SamplingParams { temperature: f32::MIN_POSITIVE, ..params() };
    for p in [hot, cold] {
        assert!(draws(p, &[f32::MAX, f32::MIN, 0.0], 10).iter().all(|&id| id < 3));
    }
}

#[test]
fn memory_is_what_was_said() {
    let sampler = Sampler::new(params(), 1000).unwrap();
    assert_eq!(sampler.heap_bytes(), Sampler::heap_bound(1000));
}
