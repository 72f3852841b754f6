// Rotary position embedding: an invocation has a pair of a head, or one element that isn't rotated.
//
// An angle is computed in whole turns as a fixed-point number, whose overflow is the periodicity: at any position it is
// as exact as its frequency, where single precision would lose as many bits as the position has. A frequency of pair `i`
// is the product of those `r^(2^b)`, r = base^(-2 / n_rot), that the bits of `i` ask for.

struct Params {
    // Mantissa of `r^(2^b)` for each b: a number of [1/2, 1) in units of 2^-32.
    mantissas: array<vec4<u32>, 3>,
    // Exponents as signed bytes: of each `r^(2^b)`, then of `unit`.
    exponents: vec4<u32>,
    // Mantissa of the turns per position of pair 0.
    unit: u32,
    rows: u32,
    cols: u32,
    head_dim: u32,
    n_rot: u32,
    // First elements.
    x: u32,
    positions: u32,
    factors: u32,
    out: u32,
}

const POWERS: u32 = 12u;

var<immediate> p: Params;
@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> positions: array<i32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;

// `mantissa * 2^(exponent - 32)`; the mantissa's upper bit is set.
struct Turns {
    mantissa: u32,
    exponent: i32,
}

// The lower and the upper word of a product.
fn wide_product(a: u32, b: u32) -> vec2<u32> {
    let low = (a & 0xffffu) * (b & 0xffffu);
    let left = (a >> 16u) * (b & 0xffffu) + (low >> 16u);
    let right = (a & 0xffffu) * (b >> 16u) + (left & 0xffffu);
    return vec2<u32>((right << 16u) | (low & 0xffffu), (a >> 16u) * (b >> 16u) + (left >> 16u) + (right >> 16u));
}

fn product(a: Turns, b: Turns) -> Turns {
    let words = wide_product(a.mantissa, b.mantissa);
    let is_normal = words.y >= 0x80000000u;
    let mantissa = select((words.y << 1u) | (words.x >> 31u), words.y, is_normal);
    let rest = select(words.x << 1u, words.x, is_normal);
    // To the nearest, unless that is the next power of two.
    let up = rest >= 0x80000000u && mantissa != 0xffffffffu;
    return Turns(mantissa + select(0u, 1u, up), a.exponent + b.exponent - select(1, 0, is_normal));
}

fn exponent_of(index: u32) -> i32 {
    return unpack4xI8(p.exponents[index >> 2u])[index & 3u];
}

// Turns per position of a pair.
fn frequency_of(pair: u32) -> Turns {
    var turns = Turns(p.unit, exponent_of(POWERS));
    for (var bit = 0u; bit < POWERS; bit++) {
        if (((pair >> bit) & 1u) != 0u) {
            turns = product(turns, Turns(p.mantissas[bit >> 2u][bit & 3u], exponent_of(bit)));
        }
    }
    return turns;
}

// The fraction of a turn at a position, in units of 2^-32.
fn phase_of(turns: Turns, position: u32) -> u32 {
    let words = wide_product(turns.mantissa, position);
    let shift = -turns.exponent;
    if (shift <= 0) {
        return select(words.x << u32(-shift), 0u, shift <= -32);
    }
    if (shift < 32) {
        return (words.x >> u32(shift)) | (words.y << u32(32 - shift));
    }
    return select(words.y >> u32(shift - 32), 0u, shift >= 64);
}

// Cosine and sine, by the polynomials of Cephes on an eighth of a turn to either side of each quarter.
fn cos_sin(phase: u32) -> vec2<f32> {
    let quarter = (phase + 0x20000000u) >> 30u;
    let angle = f32(bitcast<i32>(phase - (quarter << 30u))) * 1.46291807927e-9;
    let z = angle * angle;
    let sine = ((-1.9515295891e-4 * z + 8.3321608736e-3) * z - 1.6666654611e-1) * z * angle + angle;
    let high = ((2.443315711809948e-5 * z - 1.388731625493765e-3) * z + 4.166664568298827e-2) * z * z;
    let cosine = high - 0.5 * z + 1.0;
    switch (quarter) {
        case 0u: { return vec2<f32>(cosine, sine); }
        case 1u: { return vec2<f32>(-sine, cosine); }
        case 2u: { return vec2<f32>(-cosine, -sine); }
        default: { return vec2<f32>(sine, -cosine); }
    }
}

fn run(workgroup: vec3<u32>, lane: u32) {
    let pairs = p.n_rot / 2u;
    let slots = p.head_dim - pairs;
    let row_slots = p.cols / p.head_dim * slots;
    let item = flat(workgroup) * WORKGROUP + lane;
    if (item >= p.rows * row_slots) {
        return;
    }
    let row = item / row_slots;
    let slot = item % slots;
    let head = row * p.cols + item % row_slots / slots * p.head_dim;
    if (slot >= pairs) {
        let i = head + pairs + slot;
        out[p.out + i] = x[p.x + i];
        return;
    }
    let turns = over_factor(frequency_of(slot), slot);
    let turn = cos_sin(phase_of(turns, bitcast<u32>(positions[p.positions + row])));
    let places = vec2<u32>(head) + places_of(slot, pairs);
    let a = x[p.x + places.x];
    let b = x[p.x + places.y];
    out[p.out + places.x] = a * turn.x - b * turn.y;
    out[p.out + places.y] = a * turn.y + b * turn.x;
}
