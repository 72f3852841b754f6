// What both products have in common: parameters, bindings and the reading of x.

struct Params {
    // Live rows of x.
    rows: u32,
    // Columns of x and of the weight.
    cols: u32,
    // Rows of the weight that are bound.
    n_out: u32,
    // Bytes of a row of the weight.
    row_bytes: u32,
    // First byte of the weight's rows.
    weights: u32,
    // First element of x.
    x: u32,
    // Element of the result for the first row of x and of the weight.
    out: u32,
    // Columns of the result.
    out_cols: u32,
}

var<immediate> p: Params;
@group(0) @binding(0) var<storage, read> weights: array<u32>;
@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;

// Eight columns of a row of x.
fn x_eight(row: u32, group: u32) -> Eight {
    let i = p.x + row * p.cols + group * 8u;
    let low = vec4<f32>(x[i], x[i + 1u], x[i + 2u], x[i + 3u]);
    let high = vec4<f32>(x[i + 4u], x[i + 5u], x[i + 6u], x[i + 7u]);
    return Eight(low, high);
}
