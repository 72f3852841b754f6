// The sum over each eight neighbouring invocations, which lie in one subgroup: it has eight at least.

// Every invocation of the workgroup calls it and gets the sum of its eight.
fn sum_of_eight(value: vec4<f32>, lane: u32, step: u32) -> vec4<f32> {
    var total = value + subgroupShuffleXor(value, 1u);
    total += subgroupShuffleXor(total, 2u);
    return total + subgroupShuffleXor(total, 4u);
}
