// Rows of a table, decoded: an invocation has eight values.

struct Params {
    // Live ids.
    rows: u32,
    // Columns of the table.
    cols: u32,
    // Row of the whole table that is the first one bound.
    first_row: u32,
    // Rows that are bound.
    n_rows: u32,
    // Bytes of a row of the table.
    row_bytes: u32,
    // First byte of the rows that are bound.
    table: u32,
    // First element of the ids.
    ids: u32,
    // First element of the result.
    out: u32,
}

var<immediate> p: Params;
@group(0) @binding(0) var<storage, TABLE_ACCESS> table: array<u32>;
@group(0) @binding(1) var<storage, read_write> ids: array<i32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;

fn run(workgroup: vec3<u32>, lane: u32) {
    let groups = (p.cols + 7u) / 8u;
    let item = flat(workgroup) * WORKGROUP + lane;
    if (item >= p.rows * groups) {
        return;
    }
    let row = item / groups;
    let group = item % groups;
    let id = ids[p.ids + row];
    var values = Eight();
    if (id >= 0) {
        let index = u32(id) - p.first_row;
        // Rows of other parts of the table are theirs to write; `index` wraps for those before.
        if (index >= p.n_rows) {
            return;
        }
        values = table_eight(p.table + index * p.row_bytes, group);
    } else if (p.first_row != 0u) {
        // The first part writes the zeros.
        return;
    }
    let first = p.out + row * p.cols + group * 8u;
    let live = min(8u, p.cols - group * 8u);
    for (var i = 0u; i < min(live, 4u); i++) {
        out[first + i] = values.low[i];
    }
    for (var i = 4u; i < live; i++) {
        out[first + i] = values.high[i - 4u];
    }
}
