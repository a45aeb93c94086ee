#!/usr/bin/env python3
"""Prints the arrays of src/kernels/quant/code_grids.cc: the points of GGUF's IQ1, IQ2 and IQ3 types, out of the `gguf` package.

usage: write_grids.py; needs gguf 0.19 (pip install gguf==0.19.0).
"""

import textwrap

from gguf import quants

NAMES = {"IQ1_S": "kThirds2048", "IQ2_XXS": "kThirds256", "IQ2_XS": "kThirds512", "IQ2_S": "kThirds1024", "IQ3_XXS": "kEighths256",
         "IQ3_S": "kEighths512"}


def main():
    for kind, name in NAMES.items():
        grid = getattr(quants, kind)
        grid.init_grid()
        points = grid.grid.reshape(-1, grid.grid.shape[-1]).tolist()
        values = sorted({value for point in points for value in point})
        numbers = [sum(values.index(value) * len(values)**i for i, value in enumerate(point)) for point in points]
        assert numbers == sorted(set(numbers)), kind
        words = [0] * -(-len(values)**len(points[0]) // 64)
        for number in numbers:
            words[number // 64] |= 1 << number % 64
        lines = textwrap.wrap(", ".join(f"0x{word:X}" for word in words), 124)
        print(f"constexpr uint64_t {name}[] = {{\n" + "\n".join(f"    {line}" for line in lines) + "};")


main()
