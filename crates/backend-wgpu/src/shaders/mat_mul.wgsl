// x · wᵀ for many rows of x: a workgroup computes a tile of TILE rows of the weight by TILE rows of x, an invocation
// 4 by 4 of it. Both tiles are decoded into shared memory, DEPTH columns at a time.

const TILE: u32 = 64u;
const QUADS: u32 = TILE / 4u;
const DEPTH: u32 = 32u;

// By column, then by quad of rows at `quad_at`.
var<workgroup> weight_tile: array<vec4<f32>, DEPTH * QUADS>;
var<workgroup> x_tile: array<vec4<f32>, DEPTH * QUADS>;

// Where a tile holds a quad of rows of a column. Neighbouring invocations store eight columns apart: moving their quads
// apart too keeps them on different banks.
fn quad_at(column: u32, quad: u32) -> u32 {
    return column * QUADS + (quad ^ (((column >> 3u) & 3u) << 1u));
}

// Loads eight columns of one row of either tile. Rows beyond the last repeat it; their products are dropped.
fn load(first_row: u32, first_token: u32, first_column: u32, lane: u32) {
    let row = lane >> 2u;
    let column = (lane & 3u) * 8u;
    let group = (first_column + column) >> 3u;
    var w = Eight();
    var v = Eight();
    if (group * 8u < p.cols) {
        let live = p.cols - group * 8u;
        w = first_of(weights_eight(p.weights + min(first_row + row, p.n_out - 1u) * p.row_bytes, group), live);
        v = first_of(x_eight(min(first_token + row, p.rows - 1u), group), live);
    }
    for (var i = 0u; i < 4u; i++) {
        let low = quad_at(column + i, row >> 2u);
        let high = quad_at(column + 4u + i, row >> 2u);
        weight_tile[low][row & 3u] = w.low[i];
        weight_tile[high][row & 3u] = w.high[i];
        x_tile[low][row & 3u] = v.low[i];
        x_tile[high][row & 3u] = v.high[i];
    }
}

fn run(workgroup: vec3<u32>, lane: u32) {
    let first_row = flat(workgroup) * TILE;
    let first_token = workgroup.z * TILE;
    let row_quad = lane & 15u;
    let token_quad = lane >> 4u;
    // One vector a token, one component a row.
    var sums: array<vec4<f32>, 4>;
    for (var first_column = 0u; first_column < p.cols; first_column += DEPTH) {
        load(first_row, first_token, first_column, lane);
        workgroupBarrier();
        for (var column = 0u; column < DEPTH; column++) {
            let w = weight_tile[quad_at(column, row_quad)];
            let v = x_tile[quad_at(column, token_quad)];
            sums[0] += w * v.x;
            sums[1] += w * v.y;
            sums[2] += w * v.z;
            sums[3] += w * v.w;
        }
        workgroupBarrier();
    }
    for (var i = 0u; i < 4u; i++) {
        let token = first_token + token_quad * 4u + i;
        let row = first_row + row_quad * 4u;
        if (token < p.rows) {
            for (var j = 0u; j < min(4u, max(row, p.n_out) - row); j++) {
                out[p.out + token * p.out_cols + row + j] = sums[i][j];
            }
        }
    }
}
