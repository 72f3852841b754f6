// The sum over each eight neighbouring invocations, in shared memory.

// Eights are nine apart, which keeps them on different banks.
const EIGHTS: u32 = WORKGROUP / 8u * 9u;

// Two of them by turns: who writes one knows that nobody reads it any more.
var<workgroup> eights: array<vec4<f32>, 2u * EIGHTS>;

// Every invocation calls it, with steps that count from 0, and gets the sum of its eight.
fn sum_of_eight(value: vec4<f32>, lane: u32, step: u32) -> vec4<f32> {
    let first = (step & 1u) * EIGHTS + (lane >> 3u) * 9u;
    eights[first + (lane & 7u)] = value;
    workgroupBarrier();
    var total = eights[first];
    for (var i = 1u; i < 8u; i++) {
        total += eights[first + i];
    }
    return total;
}
