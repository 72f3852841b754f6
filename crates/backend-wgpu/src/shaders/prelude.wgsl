// What every kernel may use.

// Workgroups of a dispatch along x; further ones fold into y.
const MAX_WORKGROUPS: u32 = 65535u;

// Below every score.
const LOWEST: f32 = -3.4e38;

// Eight neighbours of a row.
struct Eight {
    low: vec4<f32>,
    high: vec4<f32>,
}

// The number of a workgroup whose dispatch is folded.
fn flat(workgroup: vec3<u32>) -> u32 {
    return workgroup.y * MAX_WORKGROUPS + workgroup.x;
}

// The first `live` of eight values, zeros for the others, which may be anything: they lie beyond the row.
fn first_of(values: Eight, live: u32) -> Eight {
    if (live >= 8u) {
        return values;
    }
    let index = vec4<u32>(0u, 1u, 2u, 3u);
    let zeros = vec4<f32>();
    return Eight(
        select(zeros, values.low, index < vec4<u32>(live)),
        select(zeros, values.high, index + 4u < vec4<u32>(live)),
    );
}

fn dot_eight(a: Eight, b: Eight) -> f32 {
    return dot(a.low, b.low) + dot(a.high, b.high);
}

// `to + addend * factor`.
fn add_scaled(to: Eight, addend: Eight, factor: f32) -> Eight {
    return Eight(to.low + addend.low * factor, to.high + addend.high * factor);
}
