//! The steps of each operation: which kernel, with which parameters, on which buffers.

use minfer_graph::{AttentionSpec, BackendError, NodeId, Op, RopeSpec};
use minfer_tensor::DType;

use super::Cost;
use super::places::Place;
use super::prepare::{Preparer, Result, word};
use crate::error::unsupported;
use crate::kernels::{
    Access, AttentionParams, ElementParams, GetRowsParams, Kernel, MatMulParams, Params, RmsNormParams,
    RopeParams, WriteRowsParams,
};

pub(super) fn get_rows(p: &mut Preparer<'_>, id: NodeId) -> Result<()> {
    let node = p.get(id);
    let [table_id, ids] = [node.inputs[0], node.inputs[1]];
    let table = p.get(table_id);
    let format = readable(p, id, table_id)?;
    let (out, ids) = (p.places.result(id, &[])?, p.integers(ids)?);
    for part in p.places.parts(table_id)? {
        let access = if part.place.is_weight() { Access::Read } else { Access::ReadWrite };
        let row_bytes = part.place.len() / part.rows.len().max(1);
        let params = GetRowsParams {
            rows: 0,
            cols: word(id, table.shape.cols)?,
            first_row: word(id, part.rows.start)?,
            n_rows: word(id, part.rows.len())?,
            row_bytes: word(id, row_bytes)?,
            table: part.place.byte(id)?,
            ids: ids.element(id)?,
            out: out.element(id)?,
        };
        // Each id is in one part of the table.
        let is_first = part.rows.start == 0 && part.place.is_weight();
        let weight_bytes_a_row = if is_first { row_bytes as u64 } else { 0 };
        let cost = Cost { weight_bytes_a_row, ..Cost::default() };
        let kernel = Kernel::GetRows { format, table: access };
        p.push(id, kernel, Params::GetRows(params), &[&part.place, &ids, &out], cost)?;
    }
    Ok(())
}

pub(super) fn mat_mul(p: &mut Preparer<'_>, id: NodeId) -> Result<()> {
    let node = p.get(id);
    let [w, x] = [node.inputs[0], node.inputs[1]];
    let format = readable(p, id, w)?;
    let (out, x) = (p.places.result(id, &[])?, p.floats(x)?);
    let kernels = products(format, p.gpu.has_subgroups(), node.shape.rows);
    for part in p.places.parts(w)? {
        let (n_out, cols) = (part.rows.len(), p.get(w).shape.cols);
        let params = MatMulParams {
            rows: 0,
            cols: word(id, cols)?,
            n_out: word(id, n_out)?,
            row_bytes: word(id, part.place.len() / n_out.max(1))?,
            weights: part.place.byte(id)?,
            x: x.element(id)?,
            out: word(id, out.element(id)? as usize + part.rows.start)?,
            out_cols: word(id, node.shape.cols)?,
        };
        let cost = Cost {
            weight_bytes: part.place.len() as u64,
            products_a_row: n_out as u64 * cols as u64,
            ..Cost::default()
        };
        p.push_variants(id, &kernels, Params::MatMul(params), &[&part.place, &x, &out], cost)?;
    }
    Ok(())
}

/// The kernels of a product of up to `max_rows` rows, each with the number of rows from which it is used.
fn products(format: DType, subgroup: bool, max_rows: usize) -> Vec<(usize, Kernel)> {
    let mut kernels: Vec<(usize, Kernel)> = Vec::new();
    for rows in 1..=max_rows.max(1) {
        let kernel = Kernel::product(format, subgroup, rows);
        if kernels.last().is_none_or(|&(_, last)| last != kernel) {
            kernels.push((rows, kernel));
        }
    }
    kernels
}

pub(super) fn rms_norm(p: &mut Preparer<'_>, id: NodeId, eps: f32) -> Result<()> {
    let node = p.get(id);
    let [x_id, w] = [node.inputs[0], node.inputs[1]];
    let (out, x, w) = (p.places.result(id, &[x_id])?, p.floats(x_id)?, p.floats(w)?);
    let params = RmsNormParams {
        rows: 0,
        cols: word(id, node.shape.cols)?,
        x: x.element(id)?,
        w: w.element(id)?,
        out: out.element(id)?,
        eps,
    };
    let kernel = Kernel::rms_norm(p.gpu.has_subgroups(), node.shape.cols);
    p.push(id, kernel, Params::RmsNorm(params), &[&x, &w, &out], Cost::default())
}

pub(super) fn zip(p: &mut Preparer<'_>, id: NodeId) -> Result<()> {
    let node = p.get(id);
    let [x_id, y_id] = [node.inputs[0], node.inputs[1]];
    let (out, x, y) = (p.places.result(id, &[x_id, y_id])?, p.floats(x_id)?, p.floats(y_id)?);
    let kernel = match node.op {
        Op::Glu(activation) => Kernel::Glu(activation),
        _ => Kernel::Add,
    };
    let params = ElementParams {
        y: y.element(id)?,
        y_len: word(id, (y.len() / size_of::<f32>()).max(1))?,
        ..elements(p, id, &x, &out, 0.0)?
    };
    p.push(id, kernel, Params::Element(params), &[&x, &y, &out], Cost::default())
}

pub(super) fn map(p: &mut Preparer<'_>, id: NodeId) -> Result<()> {
    let node = p.get(id);
    let x_id = node.inputs[0];
    let (out, x) = (p.places.result(id, &[x_id])?, p.floats(x_id)?);
    let (kernel, constant) = match node.op {
        Op::Softcap { cap } => (Kernel::Softcap, cap),
        Op::Scale { factor } => (Kernel::Scale, factor),
        _ => unreachable!("two operations map one operand"),
    };
    let params = elements(p, id, &x, &out, constant)?;
    p.push(id, kernel, Params::Element(params), &[&x, &out], Cost::default())
}

/// The parameters of an operation on the elements of `x`.
fn elements(p: &Preparer<'_>, id: NodeId, x: &Place, out: &Place, constant: f32) -> Result<ElementParams> {
    let (x, out) = (x.element(id)?, out.element(id)?);
    Ok(ElementParams { rows: 0, cols: word(id, p.get(id).shape.cols)?, x, y: 0, out, y_len: 1, constant })
}

pub(super) fn rope(p: &mut Preparer<'_>, id: NodeId, spec: &RopeSpec) -> Result<()> {
    let node = p.get(id);
    if !RopeParams::fits(spec) {
        return Err(unsupported(&node.op, DType::F32));
    }
    let [x_id, positions] = [node.inputs[0], node.inputs[1]];
    let (out, x, positions) = (p.places.result(id, &[x_id])?, p.floats(x_id)?, p.integers(positions)?);
    let factors = node.inputs.get(2).map(|&factors| p.floats(factors)).transpose()?;
    let mut params = RopeParams::new(spec);
    params.cols = word(id, node.shape.cols)?;
    params.x = x.element(id)?;
    params.positions = positions.element(id)?;
    params.factors = factors.as_ref().map_or(Ok(0), |factors| factors.element(id))?;
    params.out = out.element(id)?;
    let kernel = Kernel::Rope { style: spec.style, factors: factors.is_some() };
    let places: Vec<&Place> = [&x, &positions, &out].into_iter().chain(&factors).collect();
    p.push(id, kernel, Params::Rope(params), &places, Cost::default())
}

pub(super) fn write_rows(p: &mut Preparer<'_>, id: NodeId) -> Result<()> {
    let node = p.get(id);
    let [state_id, x_id, positions] = [node.inputs[0], node.inputs[1], node.inputs[2]];
    let dtype = p.get(state_id).dtype;
    if !Kernel::keeps(dtype) {
        return Err(unsupported(&node.op, dtype));
    }
    let (state, x, positions) = (p.places.result(id, &[state_id])?, p.floats(x_id)?, p.integers(positions)?);
    let params = WriteRowsParams {
        rows: 0,
        cols: word(id, node.shape.cols)?,
        x: x.element(id)?,
        positions: positions.element(id)?,
        state: state.word_aligned_byte(id)?,
        state_rows: word(id, node.shape.rows)?,
    };
    let kernel = Kernel::WriteRows { state: dtype };
    p.push(x_id, kernel, Params::WriteRows(params), &[&state, &x, &positions], Cost::default())
}

pub(super) fn attention(p: &mut Preparer<'_>, id: NodeId, spec: &AttentionSpec) -> Result<()> {
    let node = p.get(id);
    let [q, k, v, positions] = [node.inputs[0], node.inputs[1], node.inputs[2], node.inputs[3]];
    let (keys, values) = (p.get(k), p.get(v));
    if !Kernel::attends(keys.dtype, spec.head_dim) || keys.dtype != values.dtype {
        return Err(unsupported(&node.op, keys.dtype));
    }
    let (out, q, positions) = (p.places.result(id, &[])?, p.floats(q)?, p.integers(positions)?);
    let (k, v) = (p.places.readable(k)?, p.places.readable(v)?);
    let state_rows = keys.shape.rows.min(values.shape.rows);
    let params = AttentionParams {
        rows: 0,
        n_heads: word(id, spec.n_heads)?,
        n_kv_heads: word(id, spec.n_kv_heads)?,
        state_rows: word(id, state_rows)?,
        row_bytes: word(id, k.len() / keys.shape.rows.max(1))?,
        q: q.element(id)?,
        k: k.word_aligned_byte(id)?,
        v: v.word_aligned_byte(id)?,
        positions: positions.element(id)?,
        out: out.element(id)?,
        window: spec.window.and_then(|window| u32::try_from(window).ok()).unwrap_or(u32::MAX),
        scale: spec.scale,
        softcap: spec.softcap.unwrap_or(0.0),
    };
    let head_dim = word(id, spec.head_dim)?;
    let kernel = Kernel::Attention { state: keys.dtype, head_dim, subgroup: p.gpu.has_subgroups_of(8) };
    let seen = spec.window.unwrap_or(usize::MAX).min(state_rows) as u64;
    let cost = Cost { products_a_row: 2 * seen * (spec.n_heads * spec.head_dim) as u64, ..Cost::default() };
    p.push(id, kernel, Params::Attention(params), &[&q, &k, &v, &positions, &out], cost)
}

/// The element type of a weight or table that a kernel can unpack.
fn readable(p: &Preparer<'_>, id: NodeId, weight: NodeId) -> std::result::Result<DType, BackendError> {
    let dtype = p.get(weight).dtype;
    if Kernel::reads(dtype) { Ok(dtype) } else { Err(unsupported(&p.get(id).op, dtype)) }
}
