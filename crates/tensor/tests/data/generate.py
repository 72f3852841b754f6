"""Writes the golden vectors of ../golden.rs: `pip install gguf`, then run this file.

NAME.decode  blocks, then the f32 that the package `gguf` decodes them to
NAME.encode  f32, then the blocks that it encodes them to (where it can)

All little-endian, without headers: the reader knows how long a block is.
"""

import struct
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import quants

HERE = Path(__file__).parent
RANDOM = np.random.default_rng(1)

# Where the halves of a block's scales are, in bytes from its start.
HALVES = {
    "F16": [0], "BF16": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
    "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
}
# One, the largest, the smallest, a negative subnormal, minus zero, infinity, not a number.
EDGES = [0x3C00, 0x7BFF, 0x0001, 0x83FF, 0x8000, 0x7C00, 0x7E00]


def blocks(name, size):
    """Zeros, ones, random blocks with sensible scales, then random blocks with each edge as a scale."""
    rows = [np.zeros(size, np.uint8), np.full(size, 255, np.uint8)]
    scales = [[RANDOM.normal(0, 0.1) for _ in HALVES[name]] for _ in range(4)]
    halves = [[struct.pack("<e", x) for x in row] for row in scales]
    halves += [[struct.pack("<H", edge)] * len(HALVES[name]) for edge in EDGES]
    for row in halves:
        block = RANDOM.integers(0, 256, size, np.uint8)
        for at, half in zip(HALVES[name], row):
            block[at : at + 2] = np.frombuffer(half, np.uint8)
        rows.append(block)
    return np.stack(rows)


def values(length):
    """Rows of one block: random at several sizes, constants, ramps, and one outlier."""
    ramp = np.linspace(-1, 1, length)
    outlier = RANDOM.normal(0, 0.01, length)
    outlier[length // 3] = -7
    rows = [RANDOM.normal(0, size, length) for size in (1e-3, 0.02, 1, 300)]
    rows += [np.zeros(length), np.full(length, 0.75), np.full(length, -3), ramp, -ramp, ramp + 2, outlier]
    rows.append(np.where(np.arange(length) % 2, 1.0, -1.0))
    return np.stack(rows).astype(np.float32)


np.seterr(all="ignore")
for name in HALVES:
    kind = Type[name]
    length, size = quants.GGML_QUANT_SIZES[kind]
    data = blocks(name, size)
    decoded = quants.dequantize(data, kind).astype("<f4")
    (HERE / f"{name.lower()}.decode").write_bytes(data.tobytes() + decoded.tobytes())
    try:
        data = values(max(length, 32))
        encoded = quants.quantize(data, kind)
    except NotImplementedError:
        continue
    (HERE / f"{name.lower()}.encode").write_bytes(data.astype("<f4").tobytes() + encoded.tobytes())
