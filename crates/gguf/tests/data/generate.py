"""Writes python.gguf, which ../reference.rs reads: `pip install gguf`, then run this file."""

from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, quants

writer = GGUFWriter(Path(__file__).parent / "python.gguf", "llama")
writer.add_custom_alignment(64)
writer.add_uint8("x.u8", 200)
writer.add_int8("x.i8", -100)
writer.add_uint16("x.u16", 60_000)
writer.add_int16("x.i16", -30_000)
writer.add_uint32("x.u32", 4_000_000_000)
writer.add_int32("x.i32", -2_000_000_000)
writer.add_uint64("x.u64", 2**63 + 1)
writer.add_int64("x.i64", -(2**62))
writer.add_float32("x.f32", 0.1)
writer.add_float64("x.f64", 0.1)
writer.add_bool("x.bool", True)
writer.add_string("x.string", "Grüße")
writer.add_array("x.strings", ["a", "", "ßb"])
writer.add_array("x.ints", [1, -2, 3])
writer.add_array("x.floats", [0.5, -1.5])
writer.add_array("x.bools", [True, False])
writer.add_tensor("norm", np.arange(3, dtype=np.float32))
matrix = np.linspace(-1, 1, 96, dtype=np.float32).reshape(3, 32)
writer.add_tensor("matrix", quants.quantize(matrix, GGMLQuantizationType.Q8_0), raw_dtype=GGMLQuantizationType.Q8_0)
writer.add_tensor("half", np.array([[1, 2], [3, 4]], dtype=np.float16))
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
