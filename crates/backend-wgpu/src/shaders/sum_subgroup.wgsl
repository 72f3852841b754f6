// The sum over the workgroup, a subgroup at a time.

// A subgroup has four invocations at least.
var<workgroup> partial_sums: array<vec4<f32>, WORKGROUP / 4u>;

// Every invocation calls it and gets the sum.
fn workgroup_sum(value: vec4<f32>, lane: u32) -> vec4<f32> {
    let part = subgroupAdd(value);
    if (subgroup.lane == 0u) {
        partial_sums[subgroup.index] = part;
    }
    workgroupBarrier();
    var total = partial_sums[0];
    for (var i = 1u; i < subgroup.count; i++) {
        total += partial_sums[i];
    }
    // The next sum writes where a slower invocation still reads.
    workgroupBarrier();
    return total;
}
