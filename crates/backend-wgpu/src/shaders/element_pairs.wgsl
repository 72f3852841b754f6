// Two operands and one result; `value_of` says what becomes of a pair of elements.

struct Params {
    rows: u32,
    cols: u32,
    // First elements.
    x: u32,
    y: u32,
    out: u32,
    // Elements after which the second operand repeats.
    y_len: u32,
    // Unused.
    constant: f32,
}

var<immediate> p: Params;
@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;

fn run(workgroup: vec3<u32>, lane: u32) {
    let i = flat(workgroup) * WORKGROUP + lane;
    if (i < p.rows * p.cols) {
        out[p.out + i] = value_of(x[p.x + i], y[p.y + i % p.y_len]);
    }
}
