#!/usr/bin/env python3
"""Reads what `choral quantize --format gguf` writes with the PyPI package `gguf`, and holds every tensor to that package's own blocks. Of the
other models in their folder it knows every tensor's and every key's name.

usage: against_gguf.py CHORAL MODEL_DIR...
Needs gguf and numpy (run with gguf 0.19). Without them, here and in the Python that CHORAL_PEFT_PYTHON names, it exits with 77: skipped.
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
from importlib.metadata import version

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

try:
    import gguf
    import numpy
    from stored_tensors import stored
except ModuleNotFoundError as missing:
    import other_python
    other_python.go_on_elsewhere(missing)

TYPES = {"q8_0": gguf.GGMLQuantizationType.Q8_0, "q4_0": gguf.GGMLQuantizationType.Q4_0, "q4_1": gguf.GGMLQuantizationType.Q4_1}


def interleaved(weight, heads):
    """As llama.cpp's converter orders the rows of q and k."""
    return weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def check(choral, model, scheme, folder):
    path = folder / f"{model.name}-{scheme}.gguf"
    subprocess.run([choral, "quantize", model, path, "--scheme", scheme, "--format", "gguf", "-q"], check=True, stdout=subprocess.DEVNULL)
    config = json.loads((model / "config.json").read_text())
    reader = gguf.GGUFReader(path)
    architecture = reader.fields["general.architecture"].contents()
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[architecture.upper()], config["num_hidden_layers"])
    written = {tensor.name: tensor for tensor in reader.tensors}
    for name, values in stored(model).items():
        stem, kind = name.rsplit(".", 1)
        tensor = written.pop(f"{names.get_name(stem)}.{kind}")
        if architecture == "llama" and ".q_proj." in name:
            values = interleaved(values, config["num_attention_heads"])
        if architecture == "llama" and ".k_proj." in name:
            values = interleaved(values, config["num_key_value_heads"])
        whole = "embed_tokens" in name or "lm_head" in name
        wanted = gguf.GGMLQuantizationType.F32 if values.ndim == 1 else TYPES["q8_0" if whole else scheme]
        assert tensor.tensor_type == wanted, (name, tensor.tensor_type)
        assert list(tensor.shape) == list(reversed(values.shape)), (name, tensor.shape)
        blocks = values if values.ndim == 1 else gguf.quants.quantize(values, wanted)
        assert numpy.array_equal(tensor.data.reshape(blocks.shape), blocks), name
    assert set(written) <= {"rope_freqs.weight"}, written
    tokens = reader.fields["tokenizer.ggml.tokens"]
    assert len(tokens.data) == config["vocab_size"], len(tokens.data)
    print(f"{path.name}: {len(reader.tensors)} tensors, {len(reader.fields)} fields")


def keys_of(words):
    """All keys that the package has, "{arch}.block_count" among them."""
    for name, value in vars(words).items():
        if isinstance(value, type):
            yield from keys_of(value)
        elif isinstance(value, str) and not name.startswith("_"):
            yield value


# Layers without experts among those with some: the package knows none in these families, whose published models have none.
NOT_PUBLISHED = {"qwen3moe": {"ffn_gate", "ffn_up", "ffn_down"}, "qwen3next": {"ffn_gate", "ffn_up", "ffn_down"}}


def check_names(choral, model, folder):
    """False: this model is not written as it is; why, is tested elsewhere."""
    path = folder / f"{model.name}.gguf"
    if subprocess.run([choral, "quantize", model, path, "--scheme", "q8_0", "--format", "gguf", "-q"], capture_output=True).returncode != 0:
        return False
    reader = gguf.GGUFReader(path)
    architecture = reader.fields["general.architecture"].contents()
    of_package = next(number for number, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = {gguf.TENSOR_NAMES[tensor].removeprefix("blk.{bid}.") for tensor in gguf.MODEL_TENSORS[of_package]}
    for tensor in reader.tensors:
        name = re.sub(r"^blk\.\d+\.|\.(weight|bias|scale)$", "", tensor.name)
        assert name in names | NOT_PUBLISHED.get(architecture, set()), (model.name, tensor.name)
    known = set(keys_of(gguf.Keys))
    for key in reader.fields:
        own = key.replace(f"{architecture}.", "{arch}.", 1)
        assert key.startswith("GGUF.") or own in known or key in known, (model.name, key)
    return True


def main():
    choral, *models = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        for model in map(pathlib.Path, models):
            for scheme in TYPES:
                check(choral, model, scheme, pathlib.Path(folder))
        others = [other for other in pathlib.Path(models[0]).parent.iterdir() if check_names(choral, other, pathlib.Path(folder))]
        print(f"{len(others)} models have no name that gguf {version('gguf')} does not know")
        assert len(others) >= 20, others


main()
