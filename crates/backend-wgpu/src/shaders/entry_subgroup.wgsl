// The place of this invocation in its subgroup, and of the subgroup in the workgroup.
struct Subgroup {
    lane: u32,
    index: u32,
    count: u32,
}

var<private> subgroup: Subgroup;

@compute @workgroup_size(WORKGROUP)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
    @builtin(subgroup_invocation_id) subgroup_lane: u32,
    @builtin(subgroup_id) subgroup_index: u32,
    @builtin(num_subgroups) subgroup_count: u32,
) {
    subgroup = Subgroup(subgroup_lane, subgroup_index, subgroup_count);
    run(workgroup, lane);
}
