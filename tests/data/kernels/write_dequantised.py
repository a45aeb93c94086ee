#!/usr/bin/env python3
"""Writes TYPE.dequantised for the GGUF types named: random blocks and the floats that the `gguf` package makes of them.

usage: write_dequantised.py TYPE... (q2_k, iq4_nl, ...), in the folder of the files; needs gguf 0.19 (pip install gguf==0.19.0).
A file: two little-endian uint32, the bytes of all blocks and the number of floats; the blocks; the floats as float32.
"""

import sys

import gguf
import numpy

BLOCKS = {32: 8, 256: 3}  # so many, by elements of a block
GRID_BLOCKS = 8  # of types that choose from a grid of points
# Where the fp16 fields of a block stand.
HALVES = {"q8_0": (0,), "q4_0": (0,), "q4_1": (0, 2), "q5_0": (0,), "q5_1": (0, 2), "q4_k": (0, 2), "q5_k": (0, 2), "q6_k": (208,),
          "q2_k": (80, 82), "q3_k": (108,), "iq4_nl": (0,), "iq4_xs": (0,), "tq1_0": (52,), "tq2_0": (64,),
          "mxfp4": (), "iq1_s": (0,), "iq1_m": (), "iq2_xxs": (0,), "iq2_xs": (0,), "iq2_s": (0,), "iq3_xxs": (0,), "iq3_s": (0,)}
EXPONENTS = (0, 1, 2, 120, 127, 128, 130, 255)  # of mxfp4: the least ones give subnormal scales


def main():
    random = numpy.random.default_rng(19)
    for name in sys.argv[1:]:
        kind = gguf.GGMLQuantizationType[name.upper()]
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        count = GRID_BLOCKS if name.startswith(("iq1", "iq2", "iq3")) else BLOCKS[elements]
        blocks = random.integers(0, 256, (count, size), dtype=numpy.uint8)
        for offset in HALVES[name]:
            halves = random.uniform(-0.1, 0.1, len(blocks)).astype(numpy.float16)
            blocks[:, offset:offset + 2] = halves.view(numpy.uint8).reshape(-1, 2)
        if name == "mxfp4":
            blocks[:, 0] = EXPONENTS
        if name == "iq1_m":  # a fourth of d in each of four words
            d = random.uniform(-0.1, 0.1, len(blocks)).astype(numpy.float16).view(numpy.uint16)
            for i in range(4):
                blocks[:, 49 + 2 * i] = blocks[:, 49 + 2 * i] & 15 | (d >> 4 * i & 15) << 4
        floats = gguf.quants.dequantize(blocks, kind).astype(numpy.float32)
        with open(f"{name}.dequantised", "wb") as file:
            file.write(numpy.array([blocks.size, floats.size], dtype="<u4").tobytes())
            file.write(blocks.tobytes())
            file.write(floats.tobytes())


main()
