// Eight invocations have a block: each finds the largest of its four values, then all know the scale and each rounds its
// four. The words of the state straddle those of the quants at every other block, so they are put together in shared
// memory.

const BLOCKS: u32 = WORKGROUP / 8u;

var<workgroup> largest: array<f32, WORKGROUP>;
// Of each block the eight words of quants, as if they began at a word.
var<workgroup> quants: array<u32, WORKGROUP>;

// The integer next to x, halves away from zero, in the range of a byte. NaN is 0.
fn signed_byte(x: f32) -> i32 {
    let whole = trunc(x);
    let away = select(0.0, sign(x), abs(x - whole) >= 0.5);
    let is_nan = (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
    return select(i32(clamp(whole + away, -128.0, 127.0)), 0, is_nan);
}

// Half word `i` of a block: its scale, then its quants.
fn half_of(block: u32, scale_bits: u32, i: u32) -> u32 {
    if (i == 0u) {
        return scale_bits;
    }
    return (quants[block * 8u + ((i - 1u) >> 1u)] >> (((i - 1u) & 1u) * 16u)) & 0xffffu;
}

// The scale is in `y`, and what values are multiplied with in `x`.
fn scale_of(block: u32) -> vec2<f32> {
    var most = largest[block * 8u];
    for (var i = 1u; i < 8u; i++) {
        most = max(most, largest[block * 8u + i]);
    }
    let scale = min(most / 127.0, 65504.0);
    return vec2<f32>(select(1.0 / scale, 0.0, scale == 0.0), scale);
}

fn write_row(first: u32, position: u32, lane: u32, wanted: bool) {
    let blocks = p.cols / 32u;
    let block = lane >> 3u;
    let part = lane & 7u;
    for (var first_block = 0u; first_block < blocks; first_block += BLOCKS) {
        let index = min(first_block + block, blocks - 1u);
        let i = first + index * 32u + part * 4u;
        let values = vec4<f32>(x[i], x[i + 1u], x[i + 2u], x[i + 3u]);
        largest[lane] = size_of(values);
        workgroupBarrier();
        let scale = scale_of(block);
        let bytes = values * scale.x;
        quants[lane] = pack4xI8(vec4<i32>(
            signed_byte(bytes.x), signed_byte(bytes.y), signed_byte(bytes.z), signed_byte(bytes.w),
        ));
        workgroupBarrier();
        if (wanted && first_block + block < blocks) {
            let to = p.state / 2u + (position * blocks + index) * 17u;
            write_block(block, part, half_bits(scale.y), to);
        }
        // The next blocks' quants overwrite what a slower invocation still reads.
        workgroupBarrier();
    }
}

// The largest magnitude; NaNs don't count.
fn size_of(values: vec4<f32>) -> f32 {
    let bits = bitcast<vec4<u32>>(values) & vec4<u32>(0x7fffffffu);
    let sizes = select(bits, vec4<u32>(), bits > vec4<u32>(0x7f800000u));
    return bitcast<f32>(max(max(sizes.x, sizes.y), max(sizes.z, sizes.w)));
}

// The 17 half words of a block from half word `to` on: eight whole words, and half a one before or after.
fn write_block(block: u32, part: u32, scale_bits: u32, to: u32) {
    let phase = to & 1u;
    let i = phase + part * 2u;
    atomicStore(&state[(to + i) >> 1u], half_of(block, scale_bits, i) | (half_of(block, scale_bits, i + 1u) << 16u));
    if (part == 0u) {
        let lone = select(16u, 0u, phase == 1u);
        store_half(to + lone, half_of(block, scale_bits, lone));
    }
}
