use super::*;

/// Largest difference to f64, for values in -1..1.
const TOLERANCE: f64 = 2e-6;

/// Shapes and data of one call.
#[derive(Clone)]
struct Case {
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    positions: Vec<i32>,
    window: usize,
    softcap: Option<f32>,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    /// Whether keys lie in blocks, where their type can.
    in_blocks: bool,
}

impl Case {
    fn random(rng: &mut Rng, slots: usize, tokens: usize) -> Self {
        let kv_heads = 1 + rng.below(2);
        let heads = kv_heads * [1, 2, 3, 4, 8][rng.below(5)];
        let head_dim = 16 * (1 + rng.below(4));
        let last = 1 + rng.below(slots);
        let mut positions: Vec<i32> = (0..tokens).map(|t| (last + t) as i32 - tokens as i32).collect();
        positions.iter_mut().for_each(|p| *p = (*p).max(-1));
        let window = if rng.below(2) == 0 { usize::MAX } else { 1 + rng.below(slots) };
        let softcap = (rng.below(3) == 0).then_some(20.0);
        let q = rng.floats(tokens * heads * head_dim);
        let k = rng.floats(slots * kv_heads * head_dim);
        let v = rng.floats(slots * kv_heads * head_dim);
        Self { heads, kv_heads, head_dim, positions, window, softcap, q, k, v, in_blocks: rng.below(2) == 0 }
    }

    fn scale(&self) -> f32 {
        3.0 / (self.head_dim as f32).sqrt()
    }

    /// The kernel's arguments and a buffer of scratch for them.
    fn attention(
        &self,
        (k, key_blocks): (*const u8, usize),
        v: *const u8,
        out: &mut [f32],
    ) -> (Attention, AlignedBuf) {
        let a = Attention {
            q: self.q.as_ptr(),
            k,
            key_blocks,
            v,
            out: out.as_mut_ptr(),
            positions: self.positions.as_ptr(),
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            scale: self.scale(),
            window: self.window,
            softcap: self.softcap,
        };
        let scratch = buffer(attention_scratch_bytes(&a));
        (a, scratch)
    }

    /// The types that its rows may be stored in.
    fn types(&self) -> impl Iterator<Item = DType> + use<> {
        let head_dim = self.head_dim;
        let types = [DType::F32, DType::F16, DType::Q8_0];
        types.into_iter().filter(move |dtype| head_dim.is_multiple_of(dtype.block_len()))
    }

    /// The same with keys and values as they read back from `dtype`.
    fn rounded(&self, dtype: DType) -> Self {
        let round = |x: &[f32]| {
            let mut rounded = vec![0.0; x.len()];
            decode_row(dtype, stored(dtype, x).as_slice(), &mut rounded).unwrap();
            rounded
        };
        Self { k: round(&self.k), v: round(&self.v), ..self.clone() }
    }

    /// The keys, and how many blocks of them are transposed; the rest of the last one are rows.
    fn keys(&self, dtype: DType) -> (AlignedBuf, usize) {
        let cols = self.kv_heads * self.head_dim;
        let blocks = if self.in_blocks && dtype != DType::Q8_0 { self.k.len() / cols / KEY_BLOCK } else { 0 };
        let mut k = self.k.clone();
        for (to, from) in
            k.chunks_exact_mut(cols * KEY_BLOCK).zip(self.k.chunks_exact(cols * KEY_BLOCK)).take(blocks)
        {
            for (i, to) in to.iter_mut().enumerate() {
                *to = from[i % KEY_BLOCK * cols + i / KEY_BLOCK];
            }
        }
        (stored(dtype, &k), blocks)
    }

    /// All tokens, `step` at a time.
    fn whole(&self, table: &Kernels, dtype: DType, step: usize) -> Vec<f32> {
        let mut out = vec![f32::NAN; self.q.len()];
        let ((k, key_blocks), v) = (self.keys(dtype), stored(dtype, &self.v));
        let (a, mut scratch) = self.attention((k.as_ptr(), key_blocks), v.as_ptr(), &mut out);
        for kv_head in 0..self.kv_heads {
            for from in (0..self.positions.len()).step_by(step) {
                let tokens = from..(from + step).min(self.positions.len());
                // SAFETY: buffers as declared; positions lie within the keys.
                unsafe { table.attend(&a, dtype, kv_head, tokens, scratch.as_mut_ptr().cast()) };
            }
        }
        out
    }

    /// Each token alone, its chunks one by one.
    fn chunked(&self, table: &Kernels, dtype: DType) -> Vec<f32> {
        let mut out = vec![f32::NAN; self.q.len()];
        let ((k, key_blocks), v) = (self.keys(dtype), stored(dtype, &self.v));
        let (a, mut scratch) = self.attention((k.as_ptr(), key_blocks), v.as_ptr(), &mut out);
        let scratch = scratch.as_mut_ptr().cast();
        for kv_head in 0..self.kv_heads {
            for (token, &position) in self.positions.iter().enumerate() {
                let chunks = a.chunks(position);
                let mut partials = vec![0.0; chunks.end * self.heads / self.kv_heads * a.partial_len()];
                let out = partials.as_mut_ptr();
                // SAFETY: as above; the partial results have room for all chunks.
                unsafe {
                    for chunk in chunks.clone().rev() {
                        table.attend_chunks(&a, dtype, kv_head, token, chunk..chunk + 1, out, scratch);
                    }
                    table.merge_chunks(&a, kv_head, token, chunks, out, scratch);
                }
            }
        }
        out
    }

    /// Softmax of all scores in f64.
    fn naive(&self) -> Vec<f64> {
        let (hd, per) = (self.head_dim, self.heads / self.kv_heads);
        let mut out = Vec::new();
        for (token, &position) in self.positions.iter().enumerate() {
            for head in 0..self.heads {
                let q = &self.q[(token * self.heads + head) * hd..][..hd];
                let row = |x: &[f32], key: usize| x[(key * self.kv_heads + head / per) * hd..][..hd].to_vec();
                let end = (position + 1) as usize;
                let seen: Vec<usize> = (end.saturating_sub(self.window)..end).collect();
                let dot =
                    |key| q.iter().zip(row(&self.k, key)).map(|(&q, k)| f64::from(q) * f64::from(k)).sum();
                let scores = seen.iter().map(|&key| {
                    let score: f64 = dot(key);
                    let score = score * f64::from(self.scale());
                    self.softcap.map_or(score, |cap| f64::from(cap) * (score / f64::from(cap)).tanh()).exp()
                });
                let weights: Vec<f64> = scores.collect();
                let total: f64 = weights.iter().sum::<f64>().max(f64::MIN_POSITIVE);
                for d in 0..hd {
                    let terms =
                        seen.iter().zip(&weights).map(|(&key, w)| w * f64::from(row(&self.v, key)[d]));
                    out.push(terms.sum::<f64>() / total);
                }
            }
        }
        out
    }
}

/// `x` as `dtype`.
fn stored(dtype: DType, x: &[f32]) -> AlignedBuf {
    let mut stored = buffer(dtype.row_bytes(x.len()).unwrap().to_usize().unwrap());
    encode_row(dtype, x, stored.as_mut_slice()).unwrap();
    stored
}

#[test]
fn attention_matches_f64() {
    let mut rng = Rng::new(8);
    for _ in 0..12 {
        let case = Case::random(&mut rng, 600, 3);
        for dtype in case.types() {
            for (a, b) in case.whole(scalar(), dtype, 3).iter().zip(case.rounded(dtype).naive()) {
                assert!((f64::from(*a) - b).abs() <= TOLERANCE, "{dtype}: {a:e} and {b:e}");
            }
        }
    }
}

#[test]
fn a_bad_score_reaches_the_result() {
    let mut case = Case::random(&mut Rng::new(9), 100, 1);
    (case.positions[0], case.window) = (50, usize::MAX);
    case.q[0] = f32::NAN;
    for table in Kernels::available() {
        let out = case.whole(table, DType::F16, 1);
        assert!(out[..case.head_dim].iter().all(|x| x.is_nan()));
        assert!(out[case.head_dim..].iter().all(|x| x.is_finite()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn tables_tiles_types_and_chunks_give_the_same_bits(seed in any::<u64>(), tokens in 1usize..20) {
        let mut rng = Rng::new(seed);
        let case = Case::random(&mut rng, 700, tokens);
        for dtype in case.types() {
            let expected = case.rounded(dtype).whole(scalar(), DType::F32, tokens);
            for table in Kernels::available() {
                for in_blocks in [false, true] {
                    let (case, what) = (Case { in_blocks, ..case.clone() }, format!("{} {dtype}", table.name()));
                    assert_same_bits(&case.whole(table, dtype, 1 + rng.below(tokens)), &expected, &what);
                    assert_same_bits(&case.chunked(table, dtype), &expected, &what);
                }
            }
        }
    }
}
