// The sum over the workgroup, in shared memory.

var<workgroup> partial_sums: array<vec4<f32>, WORKGROUP>;

// Every invocation calls it and gets the sum.
fn workgroup_sum(value: vec4<f32>, lane: u32) -> vec4<f32> {
    partial_sums[lane] = value;
    workgroupBarrier();
    for (var half = WORKGROUP / 2u; half > 0u; half >>= 1u) {
        if (lane < half) {
            partial_sums[lane] += partial_sums[lane + half];
        }
        workgroupBarrier();
    }
    let total = partial_sums[0];
    // The next sum writes where a slower invocation still reads.
    workgroupBarrier();
    return total;
}
