// A workgroup has a row.

struct Params {
    rows: u32,
    cols: u32,
    // First elements.
    x: u32,
    w: u32,
    out: u32,
    // Added to the mean of squares.
    eps: f32,
}

var<immediate> p: Params;
@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> w: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;

fn run(workgroup: vec3<u32>, lane: u32) {
    // Workgroups beyond the last row repeat it.
    let row = min(flat(workgroup), p.rows - 1u) * p.cols;
    var squares = 0.0;
    for (var i = lane; i < p.cols; i += WORKGROUP) {
        let value = x[p.x + row + i];
        squares += value * value;
    }
    let total = workgroup_sum(vec4<f32>(squares, 0.0, 0.0, 0.0), lane).x;
    let inverse = inverseSqrt(total / f32(p.cols) + p.eps);
    for (var i = lane; i < p.cols; i += WORKGROUP) {
        out[p.out + row + i] = x[p.x + row + i] * inverse * w[p.w + i];
    }
}
