//! Attention. Many rows: threads take tiles of rows of one key head. One row: threads take chunks of its keys, and who ends
//! the last one of a key head merges their partial results, in the order of the chunks. The bits are the same.

use std::ops::Range;
use std::sync::atomic::Ordering;

use minfer_graph::{AttentionSpec, BackendError, NodeId};
use minfer_tensor::DType;

use super::order::{Access, Split};
use super::places::unsupported;
use super::prepare::Preparer;
use super::scratch::attention_kernel;
use super::{Run, Work, heads};
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
    let (keys, values) = (p.operand(k)?, p.operand(v)?);
    let (out, out_span) = p.result(id, &[])?;
    let rows = p.live_rows(id);
    let (positions, positions_span) = p.row_numbers(positions, id, rows, n_ctx)?;
    let attention = Attention {
        q: p.floats(q)?.0.first,
        k: keys.first,
        key_blocks: p.key_blocks(k),
        v: values.first,
        out: out.first,
        positions,
        ..attention_kernel(spec)
    };
    let scratch = p.scratch(id)?;
    let mut accesses = vec![
        Access::read(keys.span(), Split::Any),
        Access::read(values.span(), Split::Any),
        Access::read(positions_span, Split::Any),
        Access::write(scratch.threads.span(), Split::Thread),
        Access::write(out_span, Split::Any),
    ];
    let kernel =
        Kernel { attention, dtype, scratch: scratch.threads.first, scratch_stride: scratch.layout.thread };
    if rows.shape.rows > 1 {
        accesses.push(Access::read(p.floats(q)?.1, Split::Any));
        let taken = p.counters(1).start;
        p.push(rows, &accesses, Tiles { kernel, taken });
        return Ok(());
    }
    let heads = heads::prepare(p, id, spec.head_dim, &mut accesses)?;
    accesses.push(Access::write(scratch.shared.span(), Split::Any));
    let (partials, done) = (scratch.shared.first.cast(), p.counters(spec.n_kv_heads));
    p.push(rows, &accesses, Chunks { kernel, rows: heads, partials, done });
    Ok(())
}

struct Kernel {
    attention: Attention,
    dtype: DType,
    scratch: *mut u8,
    scratch_stride: usize,
}

impl Kernel {
    /// This thread's working memory.
    fn scratch(&self, run: &Run<'_>) -> *mut f32 {
        self.scratch.wrapping_add(self.scratch_stride * run.team.index()).cast()
    }
}

struct Tiles {
    kernel: Kernel,
    /// Counter of the tiles that are taken.
    taken: usize,
}

impl Work for Tiles {
    unsafe fn run(&self, run: &Run<'_>) {
        let Kernel { attention, dtype, .. } = &self.kernel;
        let wanted = run.team.count() * TILES_PER_THREAD;
        let rows = (run.live * attention.kv_heads).div_ceil(wanted).clamp(1, TILE);
        let tiles = run.live.div_ceil(rows);
        let items = tiles * attention.kv_heads;
        // Late rows see more keys, and are taken first.
        for item in run.take(self.taken, items).map(|item| items - 1 - item) {
            let (tile, kv_head) = (item / attention.kv_heads, item % attention.kv_heads);
            let tokens = tile * rows..run.live.min((tile + 1) * rows);
            // SAFETY: positions were checked against the states' rows; each tile and key head is one thread's.
            unsafe { run.kernels.attend(attention, *dtype, kv_head, tokens, self.kernel.scratch(run)) };
        }
    }
}

struct Chunks {
    kernel: Kernel,
    rows: heads::Rows,
    /// `[kv head][chunk][query head of it]` of the one row.
    partials: *mut f32,
    /// Counters of the chunks that are done, by key head.
    done: Range<usize>,
}

impl Work for Chunks {
    unsafe fn run(&self, run: &Run<'_>) {
        let (dtype, scratch) = (self.kernel.dtype, self.kernel.scratch(run));
        let a = &self.kernel.attention;
        // SAFETY: there is one row.
        let position = unsafe { *a.positions };
        let seen = a.chunks(position);
        // SAFETY: `NodeScratch` has room for a row of queries behind the kernel's own memory, and for one head more.
        let (queries, aside) = unsafe {
            let queries = scratch.add(a.scratch_len());
            let aside = queries.add(a.heads * a.head_dim);
            (queries, std::slice::from_raw_parts_mut(aside, a.head_dim))
        };
        let as_they_are = self.rows.queries.as_it_is();
        let own = Attention { q: as_they_are.unwrap_or(queries), ..a.clone() };
        let partials = |kv_head: usize| {
            self.partials.wrapping_add(kv_head * seen.end * a.heads / a.kv_heads * a.partial_len())
        };
        // SAFETY: all chunks of the key head are done.
        let merge = |kv_head: usize| unsafe {
            run.kernels.merge_chunks(&own, kv_head, 0, seen.clone(), partials(kv_head), scratch);
        };
        let items = run.team.share(seen.len() * a.kv_heads, 1);
        for item in items.clone() {
            let (kv_head, nth) = (item / seen.len(), item % seen.len());
            let group = kv_head * a.heads / a.kv_heads..(kv_head + 1) * a.heads / a.kv_heads;
            // SAFETY: the position was checked against the states' rows, so the chunks fit the partial results, and each
            // is one thread's. So is the write of a key head, for its last chunk is all that reads what is written.
            unsafe {
                if as_they_are.is_none() && (item == items.start || nth == 0) {
                    for head in group {
                        let out = queries.add(head * a.head_dim);
                        self.rows.queries.head(run, head, std::slice::from_raw_parts_mut(out, a.head_dim));
                    }
                }
                if nth + 1 == seen.len() {
                    for write in &self.rows.writes {
                        write.head(run, kv_head, position as usize, aside);
                    }
                }
                let chunk = seen.start + nth;
                run.kernels.attend_chunks(
                    &own,
                    dtype,
                    kv_head,
                    0,
                    chunk..chunk + 1,
                    partials(kv_head),
                    scratch,
                );
            }
            // Acquires what the others have written, and releases the own.
            let before = run.counters[self.done.start + kv_head].fetch_add(1, Ordering::AcqRel);
            if before + 1 == seen.len() {
                merge(kv_head);
            }
        }
        if seen.is_empty() {
            run.items(a.kv_heads).for_each(merge);
        }
    }
}
