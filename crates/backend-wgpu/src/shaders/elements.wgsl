// One operand and one result of the same shape; `value_of` says what happens to an element.

struct Params {
    rows: u32,
    cols: u32,
    // First elements.
    x: u32,
    y: u32,
    out: u32,
    // Elements after which the second operand repeats.
    y_len: u32,
    // Factor or cap.
    constant: f32,
}

var<immediate> p: Params;
@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;

fn run(workgroup: vec3<u32>, lane: u32) {
    let i = flat(workgroup) * WORKGROUP + lane;
    if (i < p.rows * p.cols) {
        out[p.out + i] = value_of(x[p.x + i]);
    }
}
