#!/usr/bin/env python3
"""Writes the *.safetensors beside it: one linear layer `l` in each form that compressed-tensors packs integers into, and in MX forms,
and what the library itself unpacks: `expected`, float32. The metadata holds the quantization_config. Needs torch and compressed-tensors 0.20."""

import json
import pathlib

import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent
ROWS, COLS = 20, 96
INT8_TOKENS = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "dynamic": True}


def scales_and_zeros(weight, args):
    groups = COLS // args.group_size if args.strategy == "group" else 1
    parts = weight.reshape(ROWS, groups, -1) if args.strategy != "tensor" else weight.reshape(1, 1, -1)
    if args.type == "float":  # powers of two
        return torch.exp2(torch.floor(torch.log2(parts.abs().amax(2))) - {4: 2, 8: 8}[args.num_bits]), None
    steps = 2**args.num_bits - 1
    if args.symmetric:
        scale = parts.abs().amax(2) / (steps / 2)
        zero = torch.zeros_like(scale)
    else:
        low, high = parts.amin(2).clamp(max=0), parts.amax(2).clamp(min=0)
        scale = (high - low) / steps
        zero = torch.clamp(torch.round(-(2 ** (args.num_bits - 1)) - low / scale), -(2 ** (args.num_bits - 1)), 2 ** (args.num_bits - 1) - 1)
    shape = (1,) if args.strategy == "tensor" else (ROWS, groups)
    return scale.reshape(shape), zero.reshape(shape).to(torch.int8)


def write(name, form, weights, activations=None, dtype=torch.bfloat16):
    torch.manual_seed(7)
    args = QuantizationArgs(**weights)
    scheme = QuantizationScheme(targets=["Linear"], weights=args, input_activations=activations, format=form)
    weight = torch.randn(ROWS, COLS) * torch.linspace(0.2, 2, ROWS)[:, None] + 0.1
    scale, zero = scales_and_zeros(weight, args)
    state = {"weight": weight, "weight_scale": scale.to(dtype)}
    if zero is not None:
        state["weight_zero_point"] = zero
    compressor = BaseCompressor.load_from_registry(form)
    packed = compressor.compress(state, scheme)
    unpacked = {k: v.float() if k == "weight_scale" and v.dtype == dtype else v for k, v in packed.items()}
    expected = compressor.decompress(unpacked, scheme)["weight"].float()
    tensors = {f"l.{key}": value.contiguous() for key, value in packed.items()}
    tensors["expected"] = expected.contiguous()
    config = {"quant_method": "compressed-tensors", "format": form, "quantization_status": "compressed", "ignore": ["lm_head"],
              "config_groups": {"group_0": {"targets": ["Linear"], "weights": json.loads(args.model_dump_json()),
                                            "input_activations": activations}}}
    save_file(tensors, HERE / f"{name}.safetensors", metadata={"quantization_config": json.dumps(config)})


def ints(bits, strategy, **more):
    return {"num_bits": bits, "type": "int", "symmetric": True, "strategy": strategy, **more}


for bits in (2, 3, 4, 5, 8):
    write(f"packed-int{bits}-group", "pack-quantized", ints(bits, "group", group_size=32))
write("packed-int4-group-asymmetric", "pack-quantized", ints(4, "group", group_size=32) | {"symmetric": False})
write("packed-int3-channel-asymmetric", "pack-quantized", ints(3, "channel") | {"symmetric": False})
write("packed-int8-channel", "pack-quantized", ints(8, "channel"), dtype=torch.float32)
write("packed-int4-tensor", "pack-quantized", ints(4, "tensor"))
write("bytes-int8-channel", "int-quantized", ints(8, "channel"), INT8_TOKENS)
write("bytes-int4-group", "int-quantized", ints(4, "group", group_size=32), INT8_TOKENS)
write("bytes-int8-channel-asymmetric", "int-quantized", ints(8, "channel") | {"symmetric": False})
write("mxfp4-group", "mxfp4-pack-quantized", {"num_bits": 4, "type": "float", "symmetric": True, "strategy": "group", "group_size": 32})
write("mxfp8-group", "mxfp8-quantized", {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "group", "group_size": 32, "scale_dtype": "torch.uint8"})
