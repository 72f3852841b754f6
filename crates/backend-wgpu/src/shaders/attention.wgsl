// Causal attention: a workgroup has a query head of one row.
//
// Eight invocations share a key, each with every eighth group of eight dimensions; the workgroup's eights take turns at
// runs of KEYS keys. Each eight has its own online softmax: the largest score so far, the sum of weights relative to it,
// and the weighted sum of values. They are merged at the end, so nothing but the dot products is exchanged before.

// Eights of invocations.
const GROUPS: u32 = WORKGROUP / 8u;
const KEYS: u32 = 4u;
// Groups of eight dimensions that an invocation has.
const PARTS: u32 = (HEAD_DIM + 63u) / 64u;

struct Params {
    rows: u32,
    n_heads: u32,
    n_kv_heads: u32,
    // Rows of the states.
    state_rows: u32,
    // Bytes of a row of a state.
    row_bytes: u32,
    // First element of the queries.
    q: u32,
    // First bytes of the states.
    k: u32,
    v: u32,
    // First elements.
    positions: u32,
    out: u32,
    // Positions that a query sees, itself included.
    window: u32,
    // Factor on the scores.
    scale: f32,
    // Bound of the scores; 0 for none.
    softcap: f32,
}

var<immediate> p: Params;
@group(0) @binding(0) var<storage, read_write> q: array<f32>;
@group(0) @binding(1) var<storage, read_write> keys: array<u32>;
@group(0) @binding(2) var<storage, read_write> values: array<u32>;
@group(0) @binding(3) var<storage, read_write> positions: array<i32>;
@group(0) @binding(4) var<storage, read_write> out: array<f32>;

var<workgroup> peaks: array<f32, GROUPS>;
var<workgroup> weights: array<f32, GROUPS>;
var<workgroup> merged: array<vec4<f32>, 2u * WORKGROUP>;

// The online softmax of some keys.
struct Softmax {
    peak: f32,
    weight: f32,
    sums: array<Eight, PARTS>,
}

fn q_eight(first: u32, group: u32) -> Eight {
    let i = first + group * 8u;
    let low = vec4<f32>(q[i], q[i + 1u], q[i + 2u], q[i + 3u]);
    let high = vec4<f32>(q[i + 4u], q[i + 5u], q[i + 6u], q[i + 7u]);
    return first_of(Eight(low, high), HEAD_DIM - group * 8u);
}

fn capped(scores: vec4<f32>) -> vec4<f32> {
    if (p.softcap == 0.0) {
        return scores;
    }
    let x = scores / p.softcap;
    return p.softcap * vec4<f32>(tanh_of(x.x), tanh_of(x.y), tanh_of(x.z), tanh_of(x.w));
}

// Bytes from the start of a state to the head in each of KEYS rows; rows from `end` on repeat the last.
fn heads_of(key: u32, end: u32, kv_head: u32) -> vec4<u32> {
    let rows = min(vec4<u32>(key) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(end - 1u));
    return rows * p.row_bytes + kv_head * HEAD_BYTES;
}

// This invocation's share of the dot products of KEYS keys.
fn dots_of(query: ptr<function, array<Eight, PARTS>>, heads: vec4<u32>, part_lane: u32) -> vec4<f32> {
    let rows = heads + p.k;
    var dots = vec4<f32>();
    for (var part = 0u; part < PARTS; part++) {
        let group = part * 8u + part_lane;
        if (group * 8u < HEAD_DIM) {
            let live = HEAD_DIM - group * 8u;
            dots += vec4<f32>(
                dot_eight((*query)[part], first_of(keys_eight(rows.x, group), live)),
                dot_eight((*query)[part], first_of(keys_eight(rows.y, group), live)),
                dot_eight((*query)[part], first_of(keys_eight(rows.z, group), live)),
                dot_eight((*query)[part], first_of(keys_eight(rows.w, group), live)),
            );
        }
    }
    return dots;
}

// Takes KEYS more keys into a softmax. Only `valid` ones count.
fn add_keys(s: ptr<function, Softmax>, scores: vec4<f32>, valid: vec4<bool>, heads: vec4<u32>, part_lane: u32) {
    let top = max(max(max(scores.x, scores.y), max(scores.z, scores.w)), (*s).peak);
    let keep = exp((*s).peak - top);
    let w = select(vec4<f32>(), exp(scores - top), valid);
    (*s).peak = top;
    (*s).weight = (*s).weight * keep + (w.x + w.y + w.z + w.w);
    let rows = heads + p.v;
    for (var part = 0u; part < PARTS; part++) {
        let group = part * 8u + part_lane;
        if (group * 8u < HEAD_DIM) {
            var sum = Eight((*s).sums[part].low * keep, (*s).sums[part].high * keep);
            sum = add_scaled(sum, values_eight(rows.x, group), w.x);
            sum = add_scaled(sum, values_eight(rows.y, group), w.y);
            sum = add_scaled(sum, values_eight(rows.z, group), w.z);
            (*s).sums[part] = add_scaled(sum, values_eight(rows.w, group), w.w);
        }
    }
}

// The share of this eight's sums in the result, over their weights: 0 without keys.
fn share_of(s: ptr<function, Softmax>, lane: u32) -> f32 {
    if ((lane & 7u) == 0u) {
        peaks[lane >> 3u] = (*s).peak;
        weights[lane >> 3u] = (*s).weight;
    }
    workgroupBarrier();
    var top = peaks[0];
    for (var i = 1u; i < GROUPS; i++) {
        top = max(top, peaks[i]);
    }
    var total = 0.0;
    for (var i = 0u; i < GROUPS; i++) {
        total += weights[i] * exp(peaks[i] - top);
    }
    return select(exp((*s).peak - top) / total, 0.0, total == 0.0);
}

// Adds up what the eights have, 64 dimensions at a time: a vector of them for each of 16 invocations.
fn merge(s: ptr<function, Softmax>, share: f32, first: u32, lane: u32, live: bool) {
    for (var part = 0u; part < PARTS; part++) {
        merged[2u * lane] = (*s).sums[part].low * share;
        merged[2u * lane + 1u] = (*s).sums[part].high * share;
        workgroupBarrier();
        if (lane < 16u && live) {
            var sum = merged[lane];
            for (var i = 1u; i < GROUPS; i++) {
                sum += merged[16u * i + lane];
            }
            for (var i = 0u; i < 4u; i++) {
                let dimension = part * 64u + lane * 4u + i;
                if (dimension < HEAD_DIM) {
                    out[first + dimension] = sum[i];
                }
            }
        }
        workgroupBarrier();
    }
}

fn run(workgroup: vec3<u32>, lane: u32) {
    let item = flat(workgroup);
    let live = item < p.rows * p.n_heads;
    let row = min(item / p.n_heads, p.rows - 1u);
    let head = item % p.n_heads;
    let kv_head = head / (p.n_heads / p.n_kv_heads);
    let first_element = (row * p.n_heads + head) * HEAD_DIM;

    let end = min(u32(max(positions[p.positions + row] + 1, 0)), p.state_rows);
    let start = end - min(end, p.window);
    var query: array<Eight, PARTS>;
    for (var part = 0u; part < PARTS; part++) {
        let group = part * 8u + (lane & 7u);
        if (group * 8u < HEAD_DIM) {
            query[part] = q_eight(p.q + first_element, group);
        }
    }
    var s = Softmax();
    s.peak = LOWEST;
    var step = 0u;
    for (var run_start = start; run_start < end; run_start += GROUPS * KEYS) {
        let key = run_start + (lane >> 3u) * KEYS;
        let heads = heads_of(key, end, kv_head);
        let dots = sum_of_eight(dots_of(&query, heads, lane & 7u), lane, step);
        let valid = vec4<u32>(key) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(end);
        let scores = select(vec4<f32>(LOWEST), capped(dots * p.scale), valid);
        add_keys(&s, scores, valid, heads, lane & 7u);
        step++;
    }
    let share = share_of(&s, lane);
    merge(&s, share, p.out + first_element, lane, live);
}
