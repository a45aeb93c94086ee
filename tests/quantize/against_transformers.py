#!/usr/bin/env python3
"""Loads what `choral quantize` writes with transformers and compressed-tensors, and holds its log-probabilities to Choral's.

usage: against_transformers.py CHORAL MODEL_DIR... [--schemes A,B] [--keep DIR]
Needs torch, transformers, accelerate and compressed-tensors (docs/quantization.md names the versions this was run with). Without them,
here and in the Python that CHORAL_PEFT_PYTHON names, it exits with 77: skipped.

transformers computes in float32 with the weights that compressed-tensors unpacks. Activations are rounded as docs/quantization.md
says, by a hook: compressed-tensors divides dynamic ones by max|x| / 127.5, Choral by max|x| / 127, two roundings of one kind. A value
that lies on the border between two integers may fall to either side by the last bit of a sum, and moves the roundings of all that
follows. So of those schemes the first place must hold, and the others may be off by less than the rounding changes.

Of a mixture transformers holds each matrix of all experts as one parameter: no module whose input a hook could round, and read from
packed integers with a scale for each channel and from fp8 alone. The other schemes of mixtures are left out here, which is said;
src/tools/quantize/quantised_mixture_test.cc has them.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

os.environ["TQDM_DISABLE"] = "1"
try:
    import accelerate  # noqa: F401
    import compressed_tensors  # noqa: F401
    import torch
    import transformers
except ModuleNotFoundError as missing:
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
    import other_python
    other_python.go_on_elsewhere(missing)

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
torch.set_num_threads(2)

SCHEMES = ["w8a16", "w4a16", "fp8", "w8a8_dynamic", "w4a8_dynamic", "w8a8"]
OF_MIXTURES = {"w8a16", "fp8"}
ROUNDED_INPUTS = {"w8a8_dynamic", "w4a8_dynamic", "w8a8"}
CALIBRATION = {"w8a8": ["--calibration", __file__]}  # any text will do
# Of log-probabilities: what float32 sums leave between the two, for weight-only integers what Choral's 16 bits of x leave.
TOLERANCES = {"w8a16": 3e-3, "w4a16": 3e-3}
FLOAT_TOLERANCE = 2e-4
TOKENS = 48


def choral_logprobs(choral, model, ids, folder):
    lines, answers = folder / "in.jsonl", folder / "out.jsonl"
    lines.write_text(json.dumps({"prompt_token_ids": ids, "max_tokens": 1, "temperature": 0, "prompt_logprobs": 0}) + "\n")
    subprocess.run([choral, "generate", model, "--input", lines, "--output", answers, "-q"], check=True)
    return torch.tensor([p["logprob"] for p in json.loads(answers.read_text())["prompt_logprobs"] if p is not None])


def rounded_rows(module, inputs):
    if not module.quantization_scheme.input_activations.dynamic:
        scale = module.input_scale.float()
        return (torch.clamp(torch.round(inputs[0] / scale), -128, 127) * scale, *inputs[1:])
    scale = inputs[0].abs().amax(-1, keepdim=True) / 127
    return (torch.where(scale > 0, torch.round(inputs[0] / scale) * scale, inputs[0]), *inputs[1:])


def transformers_logprobs(model, ids):
    loaded = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32, device_map="cpu").eval()
    quantised = 0
    for module in loaded.modules():
        scheme = getattr(module, "quantization_scheme", None)
        quantised += scheme is not None
        if scheme is not None and scheme.input_activations is not None:
            module.quantization_enabled = False
            module.register_forward_pre_hook(rounded_rows)
    with torch.no_grad():
        logits = loaded(torch.tensor([ids])).logits[0].double()
    return torch.log_softmax(logits, -1)[:-1].gather(1, torch.tensor(ids[1:])[:, None])[:, 0], quantised


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("choral")
    parser.add_argument("models", nargs="+", type=pathlib.Path)
    parser.add_argument("--schemes", default=",".join(SCHEMES))
    args = parser.parse_args()
    failed = 0
    for model in args.models:
        config = json.loads((model / "config.json").read_text())
        vocabulary, mixture = config["vocab_size"], any(key in config for key in ("num_experts", "num_local_experts", "n_routed_experts"))
        torch.manual_seed(7)
        ids = torch.randint(3, min(vocabulary, 4000), (TOKENS,)).tolist()
        for scheme in args.schemes.split(","):
            if mixture and scheme not in OF_MIXTURES:
                print(f"--   {model.name} {scheme}: a mixture, which transformers does not read so", flush=True)
                continue
            with tempfile.TemporaryDirectory() as temp:
                folder = pathlib.Path(temp)
                written = folder / "written"
                subprocess.run([args.choral, "quantize", model, written, "--scheme", scheme, "-q", *CALIBRATION.get(scheme, [])], check=True, stdout=subprocess.DEVNULL)
                ours = choral_logprobs(args.choral, written, ids, folder).double()
                theirs, quantised = transformers_logprobs(written, ids)
                plain = choral_logprobs(args.choral, model, ids, folder).double()
            off, rounding = (ours - theirs).abs(), (ours - plain).abs().max().item()
            tolerance = TOLERANCES.get(scheme, FLOAT_TOLERANCE)
            held = (off <= tolerance).double().mean().item()
            held_enough = off[0] <= tolerance if scheme in ROUNDED_INPUTS else held == 1
            good = quantised > 0 and held_enough and off.max() < rounding
            failed += not good
            print(f"{'ok  ' if good else 'FAIL'} {model.name} {scheme}: {quantised} layers, |dlogprob| first {off[0]:.1e}, median {off.median():.1e}, max"
                  f" {off.max():.1e}, within {tolerance} at {held:.0%} of {len(off)} places; the rounding itself {rounding:.1e}", flush=True)
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
