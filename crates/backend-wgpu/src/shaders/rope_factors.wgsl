@group(0) @binding(3) var<storage, read_write> factors: array<f32>;

// A long division: eight bits of the quotient at a time, until 23 bits more than the mantissa has are brought down.
fn over_factor(turns: Turns, pair: u32) -> Turns {
    let bits = bitcast<u32>(factors[p.factors + pair]);
    let divisor = (bits & 0x007fffffu) | 0x00800000u;
    var remainder = 0u;
    var quotient = 0u;
    for (var step = 0u; step < 6u; step++) {
        var digit = 0u;
        if (step < 4u) {
            digit = (turns.mantissa >> (24u - 8u * step)) & 0xffu;
        }
        let dividend = (remainder << 8u) | digit;
        quotient = (quotient << 8u) | (dividend / divisor);
        remainder = dividend % divisor;
    }
    quotient = (quotient << 7u) | ((remainder << 7u) / divisor);
    let exponent = turns.exponent - (i32((bits >> 23u) & 0xffu) - 127);
    if (quotient >= 0x80000000u) {
        return Turns(quotient, exponent);
    }
    return Turns(quotient << 1u, exponent - 1);
}
