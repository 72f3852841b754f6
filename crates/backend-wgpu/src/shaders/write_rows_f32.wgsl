fn write_row(first: u32, position: u32, lane: u32, wanted: bool) {
    let to = p.state / 4u + position * p.cols;
    for (var i = lane; wanted && i < p.cols; i += WORKGROUP) {
        atomicStore(&state[to + i], bitcast<u32>(x[first + i]));
    }
}
