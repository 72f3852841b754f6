//! Attention. Many rows: threads take tiles of rows of one key head. One row: threads take chunks of its keys, then merge
//! the partial results in the order of the chunks. The bits are the same.

use minfer_graph::{AttentionSpec, BackendError, NodeId};
use minfer_tensor::DType;

use super::order::{Access, Split};
use super::places::unsupported;
use super::prepare::Preparer;
use super::scratch::attention_kernel;
use super::{Run, Work};
use crate::kernels::Attention;
use crate::spec::has_attention;

/// Most rows of a tile. They share the loads of keys and values.
const TILE: usize = 16;
/// Tiles a thread should get, so that late rows with many keys spread out.
const TILES_PER_THREAD: usize = 4;

pub(super) fn prepare(p: &mut Preparer<'_>, id: NodeId, spec: &AttentionSpec) -> Result<(), BackendError> {
    let node = p.get(id);
    let [q, k, v, positions] = [node.inputs[0], node.inputs[1], node.inputs[2], node.inputs[3]];
    let (dtype, n_ctx) = (p.get(k).dtype, p.get(k).shape.rows.min(p.get(v).shape.rows));
    if !has_attention(dtype, spec.head_dim) || p.get(v).dtype != dtype {
        return Err(unsupported(&node.op, dtype));
    }
    let (q, q_span) = p.floats(q)?;
    let (keys, values) = (p.operand(k)?, p.operand(v)?);
    let (out, out_span) = p.result(id, &[])?;
    let rows = p.live_rows(id);
    let (positions, positions_span) = p.row_numbers(positions, id, rows, n_ctx)?;
    let attention = Attention {
        q: q.first,
        k: keys.first,
        key_blocks: p.key_blocks(k),
        v: values.first,
        out: out.first,
        positions,
        ..attention_kernel(spec)
    };
    let scratch = p.scratch(id)?;
    let threads = Access::write(scratch.threads.span(), Split::Thread);
    let reads =
        [q_span, keys.span(), values.span(), positions_span].map(|span| Access::read(span, Split::Any));
    let out = Access::write(out_span, Split::Any);
    let work = Kernel {
        attention,
        dtype,
        scratch: scratch.threads.first,
        scratch_stride: scratch.layout.thread,
        partials: scratch.shared.first.cast(),
    };
    if rows.shape.rows > 1 {
        p.push(rows, &[&reads[..], &[threads, out]].concat(), Tiles(work));
        return Ok(());
    }
    let partials = scratch.shared.span();
    p.push(
        rows,
        &[&reads[..], &[threads, Access::write(partials, Split::Any)]].concat(),
        Chunks(work.clone()),
    );
    let merge = [reads[3], Access::read(partials, Split::Any), threads, out];
    p.push(rows, &merge, Merge(work));
    Ok(())
}

#[derive(Clone)]
struct Kernel {
    attention: Attention,
    dtype: DType,
    scratch: *mut u8,
    scratch_stride: usize,
    /// `[kv head][chunk][query head of it]` of the one row.
    partials: *mut f32,
}

impl Kernel {
    /// This thread's working memory.
    fn scratch(&self, run: &Run<'_>) -> *mut f32 {
        self.scratch.wrapping_add(self.scratch_stride * run.team.index()).cast()
    }

    /// Partial results of a key head, where a head has `chunks`.
    fn partials(&self, kv_head: usize, chunks: usize) -> *mut f32 {
        let a = &self.attention;
        let heads = a.heads / a.kv_heads;
        self.partials.wrapping_add(kv_head * chunks * heads * a.partial_len())
    }

    /// The chunks that the one row sees.
    ///
    /// # Safety
    /// The positions must be readable.
    unsafe fn chunks(&self) -> std::ops::Range<usize> {
        // SAFETY: the caller's promise.
        self.attention.chunks(unsafe { *self.attention.positions })
    }
}

struct Tiles(Kernel);

impl Work for Tiles {
    unsafe fn run(&self, run: &Run<'_>) {
        let Kernel { attention, dtype, .. } = &self.0;
        let wanted = run.team.count() * TILES_PER_THREAD;
        let rows = (run.live * attention.kv_heads).div_ceil(wanted).clamp(1, TILE);
        let tiles = run.live.div_ceil(rows);
        for item in run.items(tiles * attention.kv_heads) {
            let (tile, kv_head) = (item / attention.kv_heads, item % attention.kv_heads);
            let tokens = tile * rows..run.live.min((tile + 1) * rows);
            // SAFETY: positions were checked against the states' rows; each tile and key head is one thread's.
            unsafe { run.kernels.attend(attention, *dtype, kv_head, tokens, self.0.scratch(run)) };
        }
    }
}

struct Chunks(Kernel);

impl Work for Chunks {
    unsafe fn run(&self, run: &Run<'_>) {
        let (kernel, a) = (&self.0, &self.0.attention);
        // SAFETY: there is one row.
        let seen = unsafe { kernel.chunks() };
        for item in run.items(seen.len() * a.kv_heads) {
            let (chunk, kv_head) = (seen.start + item / a.kv_heads, item % a.kv_heads);
            let (out, scratch) = (kernel.partials(kv_head, seen.end), kernel.scratch(run));
            // SAFETY: the position was checked against the states' rows, so the chunks fit the partial results; each is
            // one thread's.
            unsafe { run.kernels.attend_chunks(a, kernel.dtype, kv_head, 0, chunk..chunk + 1, out, scratch) };
        }
    }
}

struct Merge(Kernel);

impl Work for Merge {
    unsafe fn run(&self, run: &Run<'_>) {
        let (kernel, a) = (&self.0, &self.0.attention);
        // SAFETY: there is one row.
        let seen = unsafe { kernel.chunks() };
        for kv_head in run.items(a.kv_heads) {
            let (partials, scratch) = (kernel.partials(kv_head, seen.end), kernel.scratch(run));
            // SAFETY: all chunks are done; each key head is one thread's.
            unsafe { run.kernels.merge_chunks(a, kv_head, 0, seen.clone(), partials, scratch) };
        }
    }
}
