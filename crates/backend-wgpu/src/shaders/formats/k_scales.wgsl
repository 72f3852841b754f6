// The head of Q4_K and Q5_K blocks: units of scales and minima, then 6 bits of both for each of eight runs of 32.

// The scale of a run and what is added to its values.
fn source_scale_min(block: u32, run: u32) -> vec2<f32> {
    let i = block >> 2u;
    let units = unpack2x16float(source[i]);
    let shift = (run & 3u) * 8u;
    let bytes = (vec3<u32>(source[i + 1u], source[i + 2u], source[i + 3u]) >> vec3<u32>(shift)) & vec3<u32>(0xffu);
    var scale_min = bytes.xy & vec2<u32>(63u);
    if (run >= 4u) {
        // The upper two bits lie above those of the first four runs.
        let low = vec2<u32>(bytes.z & 15u, bytes.z >> 4u);
        scale_min = low | ((bytes.xy >> vec2<u32>(6u)) << vec2<u32>(4u));
    }
    return units * vec2<f32>(scale_min) * vec2<f32>(1.0, -1.0);
}
