#!/usr/bin/env python3
"""Makes a tiny random model of a family, a random adapter of it, and what transformers and PEFT answer with them.

usage: make_tiny_model.py NAME DATA_DIR
Needs torch, transformers and peft as ./dev peft installs them. Writes DATA_DIR/models/NAME, DATA_DIR/lora/NAME-lora-all, and replaces
NAME's lines of DATA_DIR/goldens/tiny.jsonl. The tokenizer is that of models/tiny-llama3. All is computed in float32 on one weight file.
"""

import json
import pathlib
import shutil
import sys
import warnings
import zlib

import peft
import torch
import transformers

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

STEPS = 32
VOCABULARY = 4096

# Prompts reach beyond longrope's first positions at once: transformers changes the factors there, and an engine that serves longer
# sequences has the long ones from the start.
PHI3 = dict(
    hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, vocab_size=VOCABULARY,
    max_position_embeddings=512, original_max_position_embeddings=16, partial_rotary_factor=0.75, sliding_window=24,
    rope_scaling={"type": "longrope", "short_factor": [1.0, 1.1, 1.2, 1.3, 1.5, 2.0], "long_factor": [1.0, 1.5, 2.2, 4.0, 9.0, 20.0]},
    rope_theta=10000.0, rms_norm_eps=1e-5, tie_word_embeddings=True, pad_token_id=0, bos_token_id=3988, eos_token_id=3989)

FAMILIES = {
    "tiny-phi3": dict(model=transformers.Phi3ForCausalLM, config=transformers.Phi3Config, fields=PHI3, prompts=(20, 33, 40, 150),
                      targets=["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]),
}


def make_model(family):
    model = family["model"](family["config"](**family["fields"], attn_implementation="eager")).float().eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.copy_(1 + 0.1 * torch.randn_like(weight))
            else:
                weight.copy_(torch.randn_like(weight) * (0.15 if "embed" in name else 1.5 * weight.shape[-1] ** -0.5))
            weight.copy_(weight.bfloat16())
    return model


def save_model(model, family, folder, data):
    model.bfloat16().save_pretrained(folder)  # which rounds buffers too: this model computes nothing any more
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(data / "models/tiny-llama3" / file, folder / file)
    (folder / "config.json").rename(folder / "config.transformers5.json")
    # As files of the family have it.
    config = dict(architectures=[family["model"].__name__], model_type=model.config.model_type, hidden_act="silu",
                  torch_dtype="bfloat16", **family["fields"])
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    for file in folder.iterdir():
        file.chmod(0o644)


def add_adapter(model, family, folder):
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=4, lora_alpha=8, target_modules=family["targets"], task_type="CAUSAL_LM"))
    with torch.no_grad():
        for name, weight in adapted.named_parameters():
            if "lora_" in name:
                weight.copy_((torch.randn_like(weight) * 0.1).bfloat16())
    adapted.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    for file in folder.iterdir():
        file.chmod(0o644)
    return adapted


@torch.no_grad()
def golden(model, prompt):
    ids, first, greedy, gaps = list(prompt), None, [], []
    for _ in range(STEPS):
        logits = model(torch.tensor([ids]), use_cache=False).logits[0, -1].float()
        first = logits if first is None else first
        top = logits.topk(2)
        greedy.append(top.indices[0].item())
        gaps.append(round((top.values[0] - top.values[1]).item(), 5))
        ids.append(greedy[-1])
    top = first.topk(10)
    return dict(prompt_ids=list(prompt), greedy_ids=greedy,
                top10=dict(ids=top.indices.tolist(), values=[round(v, 5) for v in top.values.tolist()]),
                logsumexp=round(first.logsumexp(0).item(), 5), gaps=gaps)


def main(name, data):
    family = FAMILIES[name]
    seed = zlib.crc32(name.encode())
    torch.manual_seed(seed)
    save_model(make_model(family), family, data / "models" / name, data)
    model = family["model"].from_pretrained(data / "models" / name, dtype=torch.float32, attn_implementation="eager").eval()
    rnd = torch.Generator().manual_seed(seed)
    prompts = [torch.randint(0, 3900, (length,), generator=rnd).tolist() for length in family["prompts"]]
    lines = []
    for adapter in ("base", name + "-lora-all"):
        if adapter != "base":
            model = add_adapter(model, family, data / "lora" / adapter)
        for i, prompt in enumerate(prompts):
            lines.append(json.dumps(dict(model=name, adapter=adapter, prompt_id=f"made{i}", **golden(model, prompt))))
    file = data / "goldens/tiny.jsonl"
    kept = [line for line in file.read_text().splitlines() if json.loads(line)["model"] != name]
    file.write_text("\n".join(kept + lines) + "\n")


main(sys.argv[1], pathlib.Path(sys.argv[2]))
