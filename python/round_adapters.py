#!/usr/bin/env python3
"""round_adapters.py FROM TO: copies a folder of adapters whose matrices keep five significant bits, of bf16's eight and fp32's
24, so that a wheel, which is a zip file, takes two thirds of the room. The files' layout and types stay, and DoRA's lengths as they are."""

import array
import json
import pathlib
import shutil
import sys

KEPT_BITS = 4  # behind the leading one
BITS = {"BF16": ("H", 7), "F32": ("I", 23)}  # array's type, and how many are stored


def rounded(numbers: array.array, stored_bits: int) -> array.array:
    """To the nearest, of two the even one. As whole numbers: a carry out of the fraction is the next power of two."""
    drop = stored_bits - KEPT_BITS
    below_half = (1 << (drop - 1)) - 1
    return array.array(numbers.typecode, (number + below_half + (number >> drop & 1) >> drop << drop for number in numbers))


def round_file(source: pathlib.Path, target: pathlib.Path) -> None:
    content = bytearray(source.read_bytes())
    begin = 8 + int.from_bytes(content[:8], "little")
    for name, tensor in json.loads(content[8:begin]).items():
        if name == "__metadata__" or "magnitude" in name:
            continue
        kind, stored_bits = BITS[tensor["dtype"]]
        first, end = (begin + offset for offset in tensor["data_offsets"])
        content[first:end] = rounded(array.array(kind, bytes(content[first:end])), stored_bits).tobytes()
    target.write_bytes(content)


def main() -> None:
    source, target = map(pathlib.Path, sys.argv[1:])
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    for file in source.rglob("*.safetensors"):
        round_file(file, target / file.relative_to(source))


if __name__ == "__main__":
    main()
