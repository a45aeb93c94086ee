"""What a folder's safetensors files hold, for comparisons with other packages."""

import json

import numpy


def stored(folder):
    """Every tensor of a folder's safetensors files as float32; bytes stay bytes."""
    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        data = path.read_bytes()
        size = int.from_bytes(data[:8], "little")
        for name, entry in json.loads(data[8:8 + size]).items():
            if name == "__metadata__":
                continue
            begin, end = (8 + size + offset for offset in entry["data_offsets"])
            if entry["dtype"] == "BF16":
                values = (numpy.frombuffer(data[begin:end], "<u2").astype("<u4") << 16).view("<f4")
            elif entry["dtype"] == "U8":
                values = numpy.frombuffer(data[begin:end], "u1")
            else:
                values = numpy.frombuffer(data[begin:end], {"F16": "<f2", "F32": "<f4"}[entry["dtype"]]).astype("<f4")
            tensors[name] = values.reshape(entry["shape"])
    return tensors
