// Reads a buffer from end to end; one sum per invocation keeps the reads alive.

@group(0) @binding(0) var<storage, read> source: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> sums: array<u32>;

const WORKGROUP: u32 = 256u;

@compute @workgroup_size(256)
fn main(
    @builtin(global_invocation_id) id: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let step = groups.x * WORKGROUP;
    var sum = vec4<u32>(0u);
    for (var i = id.x; i < arrayLength(&source); i += step) {
        sum ^= source[i];
    }
    sums[id.x] = sum.x ^ sum.y ^ sum.z ^ sum.w;
}
