//! A model: its configuration, its weights, and the graphs that they make.

use minfer_gguf::Index;
use minfer_graph::{ComputeGraph, GraphError, NodeId, Rows, Shape, StateDecl, StateId, WeightDecl, WeightId};
use minfer_tensor::{Bytes, DType};

use crate::blocks::{Block, Build, Kv, Linear, Wanted, rms_norm};
use crate::config::Config;
use crate::error::ModelError;
use crate::weights::WeightTable;

/// Name of the input of token ids: i32 `[tokens, 1]`.
pub const TOKENS: &str = "tokens";
/// Name of the input of positions: i32 `[tokens, 1]`, negative for padding.
pub const POSITIONS: &str = "positions";
/// Name of the input of rows that logits are asked for: i32 `[outputs, 1]`, each a row of the batch, negative for padding.
pub const OUT_IDS: &str = "out_ids";

/// A model of any family, ready to be planned: no tensor has been read.
#[derive(Clone, Debug)]
pub struct Model {
    config: Config,
    weights: Vec<WeightDecl>,
    embedding: WeightId,
    rope_factors: Option<WeightId>,
    blocks: Vec<Block>,
    output_norm: WeightId,
    head: Linear,
}

/// The output head, in a file whose embedding isn't used for it.
const HEAD: &str = "output.weight";

impl Model {
    /// The model that a file describes. Tensors that it has no use for are left alone.
    ///
    /// # Errors
    /// What [`Config::from_index`] refuses, and a tensor that is missing, or has other dimensions than the configuration
    /// says, or an element type that its role doesn't allow.
    pub fn from_index(index: &Index) -> Result<Self, ModelError> {
        let config = Config::from_index(index)?;
        let mut table = WeightTable::new(index);
        let (n_embd, n_vocab) = (config.n_embd, config.n_vocab);
        let is_tied = !table.has(HEAD);
        let embedding = table.table("token_embd.weight", n_vocab, n_embd, is_tied)?;
        let rope_factors = table.optional_vector("rope_freqs.weight", config.n_rot / 2)?;
        let blocks = (0..config.n_layers())
            .map(|il| Block::declare(&mut table, &config, il))
            .collect::<Result<_, _>>()?;
        let output_norm = table.vector("output_norm.weight", n_embd)?;
        let head = head(&mut table, &config, embedding)?;
        Ok(Self { weights: table.finish(), config, embedding, rope_factors, blocks, output_norm, head })
    }

    /// The hyper-parameters.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Every weight that the graphs name, by [`WeightId`]. Vectors are declared as F32 whatever the file has: who
    /// registers them converts. A tied output head is the embedding, here once.
    pub fn weights(&self) -> &[WeightDecl] {
        &self.weights
    }

    /// The regions of keys and values for `n_ctx` positions, by [`StateId`]: two for each block.
    ///
    /// # Errors
    /// For a type that rows can't be written as, or whose blocks don't fill a head, and for a size beyond 64 bits.
    pub fn states(&self, n_ctx: usize, dtype: DType) -> Result<Vec<StateDecl>, ModelError> {
        self.check_heads(dtype)?;
        let mut states = Vec::with_capacity(2 * self.blocks.len());
        for (layer, il) in (0..).zip(0..self.blocks.len()) {
            let row = self.config.kv_row(il);
            for (part, keys) in [("k", true), ("v", false)] {
                let name = format!("blk.{il}.{part}");
                let decl = StateDecl { name, dtype, shape: Shape::new(n_ctx, row), layer, keys };
                states.push(check_state(decl)?);
            }
        }
        Ok(states)
    }

    /// Blocks that belong to one head: a head's keys don't share a scale with another's.
    fn check_heads(&self, dtype: DType) -> Result<(), ModelError> {
        let Config { family, head_dim, .. } = self.config;
        let block_len = dtype.block_len();
        if head_dim.is_multiple_of(block_len) {
            return Ok(());
        }
        Err(ModelError::KvHead { architecture: family.name, head_dim, dtype, block_len })
    }

    /// Bytes that one position takes in the keys and values of all blocks.
    ///
    /// # Errors
    /// As [`states`](Self::states).
    pub fn kv_bytes_per_token(&self, dtype: DType) -> Result<Bytes, ModelError> {
        Ok(self.states(1, dtype)?.iter().filter_map(StateDecl::nbytes).sum())
    }

    /// The graph of a batch of up to `tokens` tokens, of which up to `outputs` rows give logits.
    ///
    /// Inputs are [`TOKENS`], [`POSITIONS`] and, with `outputs`, [`OUT_IDS`]; the output is the logits, f32
    /// `[outputs, n_vocab]`. Without `outputs` there is none, and the graph ends when the last keys and values are stored.
    ///
    /// # Errors
    /// Where a size overflows.
    ///
    /// # Panics
    /// If `states` are not those of [`states`](Self::states).
    pub fn build(
        &self,
        tokens: usize,
        outputs: usize,
        states: &[StateDecl],
    ) -> Result<ComputeGraph, GraphError> {
        let mut b = Build::new(&self.weights);
        let mut input = |name, n, rows| b.graph.input(name, DType::I32, Shape::new(n, 1), rows);
        let ids = input(TOKENS, tokens, Rows::PerToken(1))?;
        let positions = input(POSITIONS, tokens, Rows::PerToken(1))?;
        let out_ids = (outputs > 0).then(|| input(OUT_IDS, outputs, Rows::PerOutput(1))).transpose()?;
        let rope_factors = self.rope_factors.map(|id| b.weight(id)).transpose()?;
        let mut x = self.embed(&mut b, ids)?;
        for (layer, (il, block)) in (0..).zip(self.blocks.iter().enumerate()) {
            b.graph.set_layer(Some(layer));
            let [k, v] = [2 * il, 2 * il + 1].map(|i| b.graph.state(StateId::new(i), &states[i]));
            let kv = Kv { k: k?, v: v?, positions, rope_factors };
            let wanted = match out_ids {
                _ if il + 1 < self.blocks.len() => Wanted::All,
                Some(ids) => Wanted::Rows(ids),
                None => Wanted::Nothing,
            };
            match block.build(&mut b, x, &kv, wanted)? {
                Some(next) => x = next,
                None => return b.graph.finish(),
            }
        }
        b.graph.set_layer(None);
        let logits = self.logits(&mut b, x)?;
        b.graph.output(logits);
        b.graph.finish()
    }

    fn embed(&self, b: &mut Build<'_>, ids: NodeId) -> Result<NodeId, GraphError> {
        let table = b.weight(self.embedding)?;
        let x = b.graph.get_rows(table, ids)?;
        if !self.config.family.scale_embedding {
            return Ok(x);
        }
        b.graph.scale(x, (self.config.n_embd as f32).sqrt())
    }

    fn logits(&self, b: &mut Build<'_>, x: NodeId) -> Result<NodeId, GraphError> {
        let normed = rms_norm(b, x, self.output_norm, self.config.rms_eps)?;
        let logits = self.head.build(b, normed)?;
        match self.config.final_softcap {
            Some(cap) => b.graph.softcap(logits, cap),
            None => Ok(logits),
        }
    }
}

/// The output head: the embedding where the file has no other.
fn head(table: &mut WeightTable<'_>, config: &Config, embedding: WeightId) -> Result<Linear, ModelError> {
    let weight = match table.has(HEAD) {
        true => table.matrix(HEAD, config.n_vocab, config.n_embd)?,
        false => embedding,
    };
    let bias = table.optional_vector("output.bias", config.n_vocab)?;
    Ok(Linear { weight, bias, scale: None })
}

fn check_state(decl: StateDecl) -> Result<StateDecl, ModelError> {
    let Shape { rows: n_ctx, cols: row } = decl.shape;
    let error = |expected| ModelError::Kv { n_ctx, row, dtype: decl.dtype, expected };
    if !matches!(decl.dtype, DType::F32 | DType::F16 | DType::Q8_0) {
        return Err(error("F16, F32 or Q8_0"));
    }
    match decl.nbytes() {
        Some(_) => Ok(decl),
        None => Err(error("fewer bytes than 64 bits count")),
    }
}
