//! Angles of the rotary position embedding.

/// Cosines and sines of the pairs of a head at one position.
#[derive(Clone, Copy, Debug)]
pub struct RopeAngles<'a> {
    /// Cosine of each pair.
    pub cos: &'a [f32],
    /// Sine of each pair.
    pub sin: &'a [f32],
}

impl<'a> RopeAngles<'a> {
    /// Fills `buffer` (twice as long as `frequencies`) with the angles at `position`.
    ///
    /// # Panics
    /// If the buffer has another length.
    pub fn fill(buffer: &'a mut [f32], position: i32, frequencies: &[f64]) -> Self {
        assert_eq!(buffer.len(), 2 * frequencies.len(), "room for a cosine and a sine of each pair");
        let (cos, sin) = buffer.split_at_mut(frequencies.len());
        for ((c, s), f) in cos.iter_mut().zip(sin.iter_mut()).zip(frequencies) {
            let (sine, cosine) = (f64::from(position) * f).sin_cos();
            (*c, *s) = (cosine as f32, sine as f32);
        }
        Self { cos, sin }
    }
}

/// Radians per position of pair `i`: `scale * base^(-2 i / n)`, over the pair's factor if there are factors
/// (Su et al. 2021). Writes `out`, of `n / 2` pairs.
pub fn rope_frequencies(out: &mut [f64], base: f32, scale: f32, factors: Option<&[f32]>) {
    let pairs = out.len() as f64;
    for (i, f) in out.iter_mut().enumerate() {
        let factor = factors.and_then(|f| f.get(i)).map_or(1.0, |&f| f64::from(f));
        *f = f64::from(scale) * f64::from(base).powf(-(i as f64) / pairs) / factor;
    }
}
