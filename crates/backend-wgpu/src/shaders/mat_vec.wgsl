// x · wᵀ for a few rows of x: a workgroup has ROWS rows of the weight and reads them once for TOKENS rows of x.

const ROWS: u32 = 4u;

// Eight columns of a row of x, zeros past the last. A token beyond the last repeats it; its sums are dropped.
fn token_eight(token: u32, group: u32) -> Eight {
    return first_of(x_eight(min(token, p.rows - 1u), group), p.cols - group * 8u);
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
            let e = token_eight(first_token + token, group);
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
