// x · wᵀ for a few rows of x: a workgroup has ROWS rows of the weight and reads them once for TOKENS rows of x.

const ROWS: u32 = 4u;

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

fn x_eight(token: u32, group: u32) -> Eight {
    // A token beyond the last repeats it; its sums are dropped.
    let i = p.x + min(token, p.rows - 1u) * p.cols + group * 8u;
    let low = vec4<f32>(x[i], x[i + 1u], x[i + 2u], x[i + 3u]);
    let high = vec4<f32>(x[i + 4u], x[i + 5u], x[i + 6u], x[i + 7u]);
    return first_of(Eight(low, high), p.cols - group * 8u);
}

fn weight_eight(row: u32, group: u32) -> Eight {
    return first_of(weights_eight(row, group), p.cols - group * 8u);
}

fn run(workgroup: vec3<u32>, lane: u32) {
    let first_row = flat(workgroup) * ROWS;
    let first_token = workgroup.z * TOKENS;
    // Rows beyond the last repeat it; their sums are dropped.
    let indices = min(vec4<u32>(first_row) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(p.n_out - 1u));
    let rows = indices * p.row_bytes + p.weights;
    var sums: array<vec4<f32>, TOKENS>;
    for (var group = lane; group * 8u < p.cols; group += WORKGROUP) {
        let a = weight_eight(rows.x, group);
        let b = weight_eight(rows.y, group);
        let c = weight_eight(rows.z, group);
        let d = weight_eight(rows.w, group);
        for (var token = 0u; token < TOKENS; token++) {
            let e = x_eight(first_token + token, group);
            sums[token] += vec4<f32>(dot_eight(a, e), dot_eight(b, e), dot_eight(c, e), dot_eight(d, e));
        }
    }
    for (var token = 0u; token < TOKENS; token++) {
        let total = workgroup_sum(sums[token], lane);
        if (lane < ROWS && first_row + lane < p.n_out && first_token + token < p.rows) {
            out[p.out + (first_token + token) * p.out_cols + first_row + lane] = total[lane];
        }
    }
}
