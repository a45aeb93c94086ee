#!/usr/bin/env python3
"""Writes TYPE.quantised for the GGUF types named: floats and the blocks that the `gguf` package makes of them.

usage: write_quantised.py TYPE... (q8_0, q4_0, q4_1), in the folder of the files; needs gguf 0.19 (pip install gguf==0.19.0).
A file: two little-endian uint32, the number of floats and the bytes of all blocks; the floats as float32; the blocks.
"""

import sys

import gguf
import numpy


def main():
    random = numpy.random.default_rng(20)
    rows = [*random.normal(0, 0.05, (8, 32)), *random.normal(0, 300, (2, 32)), *random.normal(0, 1e-7, (2, 32)), numpy.zeros(32),
            numpy.full(32, -1.5), numpy.full(32, 2.25), numpy.arange(32) - 16, 16 - numpy.arange(32),
            (numpy.arange(32) - 15.5) / 4,  # ties of both kinds
            numpy.abs(random.normal(0, 1, 32)), -numpy.abs(random.normal(0, 1, 32)),
            numpy.where(numpy.arange(32) == 7, 1000, random.normal(0, 0.1, 32)),
            numpy.where(numpy.arange(32) == 1, 0.2734375, 0.05126953125)]  # ties of Q4_0 but for the inverse's rounding
    floats = numpy.array(rows, dtype=numpy.float32)
    for name in sys.argv[1:]:
        blocks = gguf.quants.quantize(floats, gguf.GGMLQuantizationType[name.upper()])
        with open(f"{name}.quantised", "wb") as file:
            file.write(numpy.array([floats.size, blocks.size], dtype="<u4").tobytes())
            file.write(floats.tobytes())
            file.write(blocks.tobytes())


main()
