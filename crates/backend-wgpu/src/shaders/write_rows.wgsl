// Rows into a state, in its element type: a workgroup has a row. `write_row` encodes it.
//
// Rows need not end at a word: words are atomic, so that two workgroups may each write their half of one.

struct Params {
    rows: u32,
    cols: u32,
    // First elements.
    x: u32,
    positions: u32,
    // First byte of the state.
    state: u32,
    // Rows of the state.
    state_rows: u32,
}

var<immediate> p: Params;
@group(0) @binding(0) var<storage, read_write> state: array<atomic<u32>>;
@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> positions: array<i32>;

var<workgroup> is_superseded: u32;

// Whether the row is to be written: its position exists, and no later row has it too.
fn is_wanted(row: u32, position: i32, lane: u32) -> bool {
    if (lane == 0u) {
        is_superseded = 0u;
    }
    workgroupBarrier();
    for (var later = row + 1u + lane; later < p.rows; later += WORKGROUP) {
        if (positions[p.positions + later] == position) {
            is_superseded = 1u;
        }
    }
    workgroupBarrier();
    return is_superseded == 0u && position >= 0 && u32(position) < p.state_rows;
}

// Writes half a word; the other half may be another row's.
fn store_half(index: u32, bits: u32) {
    let shift = (index & 1u) * 16u;
    atomicAnd(&state[index >> 1u], ~(0xffffu << shift));
    atomicOr(&state[index >> 1u], bits << shift);
}

fn run(workgroup: vec3<u32>, lane: u32) {
    // Workgroups beyond the last row repeat it.
    let row = min(flat(workgroup), p.rows - 1u);
    let position = positions[p.positions + row];
    let wanted = is_wanted(row, position, lane);
    write_row(p.x + row * p.cols, u32(max(position, 0)), lane, wanted);
}
