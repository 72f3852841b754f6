//! Random models: for a seed, a family of graphs over all rungs, with long lives, chains of views and aliases, states.

use minfer_graph::{
    Activation, AttentionSpec, ComputeGraph, GraphBuilder, GraphError, NodeId, RopeSpec, RopeStyle, Rows,
    Rung, Shape, StateDecl, StateId, WeightDecl, WeightId,
};

use minfer_tensor::DType;

use crate::rng::Rng;

/// Elements of a row.
const COLS: usize = 32;
/// Rows of the embedding.
pub const VOCAB: usize = 50;

/// A model of random blocks. The topology follows from the seed alone; the rung only sizes it.
#[derive(Clone, Debug)]
pub struct RandomModel {
    seed: u64,
    /// Blocks.
    pub n_layers: u32,
    /// Positions of the context.
    pub n_ctx: usize,
    /// Weights, by id.
    pub weights: Vec<WeightDecl>,
    /// States, by id.
    pub states: Vec<StateDecl>,
}

impl RandomModel {
    /// The model of a seed.
    pub fn new(seed: u64) -> Self {
        let n_layers = 1 + Rng::new(seed).below(4) as u32;
        let model = Self { seed, n_layers, n_ctx: 48, weights: Vec::new(), states: Vec::new() };
        let mut weaver = Weaver::new(model, Rung { tokens: 1, outputs: 1 });
        weaver.weave().expect("a random model is well formed");
        weaver.model
    }

    /// The graph of a rung.
    pub fn graph(&self, rung: Rung) -> ComputeGraph {
        let mut weaver = Weaver::new(self.clone(), rung);
        weaver.weave().expect("a random model is well formed");
        weaver.builder.finish().expect("a random model holds together")
    }
}

/// Builds one graph. Every decision is drawn before the rung matters, so all rungs draw the same.
struct Weaver {
    model: RandomModel,
    random: Rng,
    builder: GraphBuilder,
    rung: Rung,
    /// Values of shape `[tokens, COLS]` to draw operands from.
    values: Vec<NodeId>,
    layer: Option<u32>,
}

type Woven<T> = Result<T, GraphError>;

impl Weaver {
    fn new(model: RandomModel, rung: Rung) -> Self {
        let mut random = Rng::new(model.seed);
        random.below(4);
        Self { model, random, builder: GraphBuilder::new(), rung, values: Vec::new(), layer: None }
    }

    fn weave(&mut self) -> Woven<()> {
        let per_token = Shape::new(self.rung.tokens, 1);
        let tokens = self.builder.input("tokens", DType::I32, per_token, Rows::PerToken(1))?;
        let positions = self.builder.input("positions", DType::I32, per_token, Rows::PerToken(1))?;
        let extra = self.builder.input("extra", DType::F32, Shape::new(4, COLS), Rows::Fixed)?;
        let table = self.weight("token_embd.weight", VOCAB)?;
        let embedded = self.builder.get_rows(table, tokens)?;
        self.values.push(embedded);
        for layer in 0..self.model.n_layers {
            self.layer = Some(layer);
            self.builder.set_layer(self.layer);
            for step in 0..4 + self.random.below(8) {
                self.step(step, positions, extra)?;
            }
        }
        self.layer = None;
        self.builder.set_layer(None);
        self.head()
    }

    fn step(&mut self, step: usize, positions: NodeId, extra: NodeId) -> Woven<()> {
        let (x, y) = (self.recent(), self.any());
        let kind = self.random.below(11);
        let first_row = self.random.below(4);
        let value = match kind {
            0 | 1 => self.builder.add(x, y)?,
            2 => self.builder.scale(x, 0.5)?,
            3 => self.builder.softcap(x, 30.0)?,
            4 => self.builder.glu(Activation::Silu, x, y)?,
            5 => self.builder.rope(x, positions, None, rope_spec())?,
            6 => {
                let w = self.block_weight("norm", step, 1)?;
                self.builder.rms_norm(x, w, 1e-5)?
            }
            7 => {
                let w = self.block_weight("proj", step, COLS)?;
                self.builder.mat_mul(w, x)?
            }
            8 => self.viewed(x)?,
            9 => {
                let row = self.builder.slice_rows(extra, first_row, 1)?;
                self.builder.add(x, row)?
            }
            _ => self.attend(step, x, y, positions)?,
        };
        self.values.push(value);
        Ok(())
    }

    /// In-place candidates behind a chain of views.
    fn viewed(&mut self, x: NodeId) -> Woven<NodeId> {
        let n = self.rung.tokens;
        let halves = self.builder.reshape(x, Shape::new(2 * n, COLS / 2))?;
        let quarters = self.builder.reshape(halves, Shape::new(4 * n, COLS / 4))?;
        let scaled = self.builder.scale(quarters, 2.0)?;
        self.builder.reshape(scaled, Shape::new(n, COLS))
    }

    fn attend(&mut self, step: usize, x: NodeId, y: NodeId, positions: NodeId) -> Woven<NodeId> {
        let k = self.state("k", true, step)?;
        let v = self.state("v", false, step)?;
        let k = self.builder.write_rows(k, x, positions)?;
        let v = self.builder.write_rows(v, y, positions)?;
        let spec = AttentionSpec {
            n_heads: 2,
            n_kv_heads: 2,
            head_dim: COLS / 2,
            scale: 1.0,
            window: None,
            softcap: None,
        };
        self.builder.attention(x, k, v, positions, spec)
    }

    fn head(&mut self) -> Woven<()> {
        let norm = self.weight("output_norm.weight", 1)?;
        let head = self.weight("output.weight", VOCAB)?;
        let (last, also) = (self.recent(), self.any());
        if self.rung.outputs == 0 {
            return Ok(());
        }
        let shape = Shape::new(self.rung.outputs, 1);
        let ids = self.builder.input("out_ids", DType::I32, shape, Rows::PerOutput(1))?;
        let rows = self.builder.get_rows(last, ids)?;
        let normed = self.builder.rms_norm(rows, norm, 1e-5)?;
        let logits = self.builder.mat_mul(head, normed)?;
        self.builder.output(logits);
        self.builder.output(also);
        Ok(())
    }

    fn recent(&mut self) -> NodeId {
        let n = self.values.len();
        self.values[n - 1 - self.random.below(n.min(3))]
    }

    fn any(&mut self) -> NodeId {
        self.values[self.random.below(self.values.len())]
    }

    fn block_weight(&mut self, name: &str, step: usize, rows: usize) -> Woven<NodeId> {
        let layer = self.layer.expect("within a block");
        self.weight(&format!("blk.{layer}.{name}{step}.weight"), rows)
    }

    fn weight(&mut self, name: &str, rows: usize) -> Woven<NodeId> {
        let known = self.model.weights.iter().position(|decl| decl.name == name);
        let index = known.unwrap_or(self.model.weights.len());
        if known.is_none() {
            let shape = Shape::new(rows, COLS);
            self.model.weights.push(WeightDecl {
                name: name.to_owned(),
                dtype: DType::F32,
                shape,
                multiplied: true,
            });
        }
        self.builder.weight(WeightId::new(index), &self.model.weights[index])
    }

    fn state(&mut self, name: &str, keys: bool, step: usize) -> Woven<NodeId> {
        let layer = self.layer.expect("within a block");
        let name = format!("blk.{layer}.{name}{step}");
        let known = self.model.states.iter().position(|decl| decl.name == name);
        let index = known.unwrap_or(self.model.states.len());
        if known.is_none() {
            let shape = Shape::new(self.model.n_ctx, COLS);
            self.model.states.push(StateDecl { name, dtype: DType::F32, shape, layer, keys });
        }
        self.builder.state(StateId::new(index), &self.model.states[index])
    }
}

fn rope_spec() -> RopeSpec {
    let style = RopeStyle::Halves;
    RopeSpec { head_dim: COLS / 2, n_rot: COLS / 2, style, base: 10_000.0, scale: 1.0 }
}
