//! A random decoder of the usual kind: embedding, blocks of attention and gated feed-forward, a head over chosen rows.

use minfer_graph::{
    Activation, AttentionSpec, BackendError, BatchCounts, ComputeGraph, GraphBuilder, GraphError, InputId,
    NodeId, RopeSpec, RopeStyle, Rows, Shape, StateDecl, StateId, WeightDecl, WeightId,
};
use minfer_tensor::DType;

use crate::case_builder::encode;
use crate::rng::Rng;
use crate::runner::{Runner, Session};

/// Dimensions and element types.
#[derive(Clone, Copy, Debug)]
pub struct Transformer {
    /// Blocks.
    pub n_layers: usize,
    /// Width of the residual stream.
    pub n_embd: usize,
    /// Width of the feed-forward network.
    pub n_ff: usize,
    /// Query heads.
    pub n_heads: usize,
    /// Key and value heads.
    pub n_kv_heads: usize,
    /// Tokens that exist.
    pub n_vocab: usize,
    /// Positions that the states hold.
    pub n_ctx: usize,
    /// Whether attention and feed-forward network end with a norm.
    pub post_norms: bool,
    /// Element type of the blocks' weights.
    pub weights: DType,
    /// Element type of embedding and head.
    pub head: DType,
    /// Element type of keys and values.
    pub kv: DType,
}

impl Transformer {
    /// Two blocks that a scalar loop runs in no time.
    pub const TINY: Self = Self {
        n_layers: 2,
        n_embd: 128,
        n_ff: 288,
        n_heads: 4,
        n_kv_heads: 2,
        n_vocab: 300,
        n_ctx: 320,
        post_norms: false,
        weights: DType::Q4_0,
        head: DType::Q8_0,
        kv: DType::F16,
    };

    /// The shape of SmolLM2-135M.
    pub const SMOL: Self = Self {
        n_layers: 30,
        n_embd: 576,
        n_ff: 1536,
        n_heads: 9,
        n_kv_heads: 3,
        n_vocab: 49152,
        n_ctx: 2048,
        post_norms: false,
        weights: DType::Q4_0,
        head: DType::Q8_0,
        kv: DType::F16,
    };

    fn head_dim(&self) -> usize {
        self.n_embd / self.n_heads
    }

    fn kv_cols(&self) -> usize {
        self.n_kv_heads * self.head_dim()
    }

    /// Creates random weights and zeroed states.
    pub fn register(&self, session: &mut Session<'_>, seed: u64) -> Result<(), BackendError> {
        let mut rng = Rng::new(seed);
        for (i, decl) in self.weight_decls().iter().enumerate() {
            let values = match decl.shape.rows {
                1 => (0..decl.shape.cols).map(|_| 1.0 + 0.1 * rng.normal()).collect(),
                _ => rng.normals(decl.shape.rows * decl.shape.cols, (decl.shape.cols as f32).powf(-0.5)),
            };
            let data = encode(decl.dtype, decl.shape, &values);
            session.register_weight(WeightId::new(i), decl, data)?;
        }
        for (i, decl) in self.state_decls().iter().enumerate() {
            let len = decl.nbytes().and_then(minfer_tensor::Bytes::to_usize).expect("a small state");
            session.add_state(StateId::new(i), decl, &vec![0; len])?;
        }
        Ok(())
    }

    fn weight_decls(&self) -> Vec<WeightDecl> {
        let (d, kv, ff) = (self.n_embd, self.kv_cols(), self.n_ff);
        let decl = |name: String, dtype, rows, cols| WeightDecl {
            name,
            dtype,
            shape: Shape::new(rows, cols),
            multiplied: rows > 1,
        };
        let mut decls =
            vec![decl("embedding".into(), self.head, self.n_vocab, d), decl("norm".into(), DType::F32, 1, d)];
        for l in 0..self.n_layers {
            decls.push(decl(format!("{l}.attn_norm"), DType::F32, 1, d));
            decls.push(decl(format!("{l}.ffn_norm"), DType::F32, 1, d));
            let matrices = [
                ("q", d, d),
                ("k", kv, d),
                ("v", kv, d),
                ("o", d, d),
                ("gate", ff, d),
                ("up", ff, d),
                ("down", d, ff),
            ];
            decls.extend(matrices.map(|(n, rows, cols)| decl(format!("{l}.{n}"), self.weights, rows, cols)));
            let post_norms =
                ["post_attention_norm", "post_ffw_norm"].iter().take(2 * usize::from(self.post_norms));
            decls.extend(post_norms.map(|n| decl(format!("{l}.{n}"), DType::F32, 1, d)));
        }
        decls
    }

    fn state_decls(&self) -> Vec<StateDecl> {
        let shape = Shape::new(self.n_ctx, self.kv_cols());
        let decl = |l, keys| StateDecl {
            name: format!("{l}.{}", if keys { "k" } else { "v" }),
            dtype: self.kv,
            shape,
            layer: l as u32,
            keys,
        };
        (0..self.n_layers).flat_map(|l| [decl(l, true), decl(l, false)]).collect()
    }

    /// The graph for `rung` tokens and `n_out` rows of logits. Inputs: token ids, positions, rows to give logits of. Without
    /// such rows it ends when the last keys and values are stored.
    pub fn graph(&self, rung: usize, n_out: usize) -> Result<ComputeGraph, GraphError> {
        Net { spec: self, weights: self.weight_decls(), states: self.state_decls(), b: GraphBuilder::new() }
            .build(rung, n_out)
    }

    /// Writes tokens at positions `first..` and runs; logits of the last `counts.outputs` tokens are asked for.
    pub fn step(
        &self,
        session: &mut Session<'_>,
        runner: &mut Runner,
        tokens: &[i32],
        first: usize,
        outputs: usize,
    ) -> Result<(), BackendError> {
        let column =
            |from: usize, n: usize| (from..from + n).flat_map(|i| (i as i32).to_le_bytes()).collect();
        let ids: Vec<u8> = tokens.iter().copied().flat_map(i32::to_le_bytes).collect();
        let positions: Vec<u8> = column(first, tokens.len());
        let rows: Vec<u8> = column(tokens.len() - outputs, outputs);
        for (i, data) in [ids, positions, rows].iter().take(2 + outputs.min(1)).enumerate() {
            runner.write_input(session, InputId::new(i), data)?;
        }
        runner.run(session, BatchCounts { tokens: tokens.len(), outputs })
    }
}

struct Net<'a> {
    spec: &'a Transformer,
    weights: Vec<WeightDecl>,
    states: Vec<StateDecl>,
    b: GraphBuilder,
}

type Built = Result<NodeId, GraphError>;

impl Net<'_> {
    fn build(mut self, rung: usize, n_out: usize) -> Result<ComputeGraph, GraphError> {
        let ids = self.b.input("tokens", DType::I32, Shape::new(rung, 1), Rows::PerToken(1))?;
        let positions = self.b.input("positions", DType::I32, Shape::new(rung, 1), Rows::PerToken(1))?;
        let outputs =
            |b: &mut GraphBuilder| b.input("outputs", DType::I32, Shape::new(n_out, 1), Rows::PerOutput(1));
        let wanted = (n_out > 0).then(|| outputs(&mut self.b)).transpose()?;
        let embedding = self.weight(0)?;
        let mut x = self.b.get_rows(embedding, ids)?;
        for layer in 0..self.spec.n_layers {
            self.b.set_layer(Some(layer as u32));
            let ends = wanted.is_none() && layer + 1 == self.spec.n_layers;
            let Some(out) = self.attention(layer, x, positions, ends)? else { return self.b.finish() };
            x = self.add(layer, 0, out, x)?;
            x = self.feed_forward(layer, x)?;
        }
        self.b.set_layer(None);
        let x = wanted.map_or(Ok(x), |rows| self.b.get_rows(x, rows))?;
        let norm = self.weight(1)?;
        let x = self.b.rms_norm(x, norm, 1e-5)?;
        let logits = self.b.mat_mul(embedding, x)?;
        self.b.output(logits);
        self.b.finish()
    }

    fn rope(&mut self, x: NodeId, positions: NodeId) -> Built {
        let head_dim = self.spec.head_dim();
        let style = RopeStyle::Adjacent;
        self.b.rope(
            x,
            positions,
            None,
            RopeSpec { head_dim, n_rot: head_dim, style, base: 10000.0, scale: 1.0 },
        )
    }

    /// Nothing but keys and values if the graph ends here.
    fn attention(
        &mut self,
        layer: usize,
        x: NodeId,
        positions: NodeId,
        ends: bool,
    ) -> Result<Option<NodeId>, GraphError> {
        let spec = self.spec;
        let attention = AttentionSpec {
            n_heads: spec.n_heads,
            n_kv_heads: spec.n_kv_heads,
            head_dim: spec.head_dim(),
            scale: (spec.head_dim() as f32).powf(-0.5),
            window: None,
            softcap: None,
        };
        let h = self.norm(layer, 0, x)?;
        let q = if ends { None } else { Some(self.project(layer, 0, h)?) };
        let (k, v) = (self.project(layer, 1, h)?, self.project(layer, 2, h)?);
        let q = q.map(|q| self.rope(q, positions)).transpose()?;
        let k = self.rope(k, positions)?;
        let (k, v) = (self.write(2 * layer, k, positions)?, self.write(2 * layer + 1, v, positions)?);
        let Some(q) = q else { return Ok(None) };
        let out = self.b.attention(q, k, v, positions, attention)?;
        self.project(layer, 3, out).map(Some)
    }

    fn feed_forward(&mut self, layer: usize, x: NodeId) -> Built {
        let h = self.norm(layer, 1, x)?;
        let (gate, up) = (self.project(layer, 4, h)?, self.project(layer, 5, h)?);
        let h = self.b.glu(Activation::Silu, gate, up)?;
        let out = self.project(layer, 6, h)?;
        self.add(layer, 1, out, x)
    }

    fn add(&mut self, layer: usize, which: usize, out: NodeId, x: NodeId) -> Built {
        let out = if self.spec.post_norms { self.norm(layer, 9 + which, out)? } else { out };
        self.b.add(out, x)
    }

    fn norm(&mut self, layer: usize, which: usize, x: NodeId) -> Built {
        let w = self.layer_weight(layer, which)?;
        self.b.rms_norm(x, w, 1e-5)
    }

    fn project(&mut self, layer: usize, which: usize, x: NodeId) -> Built {
        let w = self.layer_weight(layer, 2 + which)?;
        self.b.mat_mul(w, x)
    }

    fn write(&mut self, state: usize, x: NodeId, positions: NodeId) -> Built {
        let region = self.b.state(StateId::new(state), &self.states[state])?;
        self.b.write_rows(region, x, positions)
    }

    fn layer_weight(&mut self, layer: usize, which: usize) -> Built {
        let in_a_layer = if self.spec.post_norms { 11 } else { 9 };
        self.weight(2 + layer * in_a_layer + which)
    }

    fn weight(&mut self, index: usize) -> Built {
        self.b.weight(WeightId::new(index), &self.weights[index])
    }
}
