#!/usr/bin/env python3
"""Asks transformers and PEFT what gemma-3-270m-q4_k_m.gguf, the file that ./dev test fetches, answers: the reference of a real model
with a vocabulary of 262,144 tokens.

usage: make_gemma_goldens.py GGUF DATA_DIR
Needs torch, transformers and peft as ./dev peft installs them, and gguf 0.19. Writes DATA_DIR/goldens/gemma-270m.jsonl,
DATA_DIR/text/goldens/tokenizer-gemma-270m.jsonl and DATA_DIR/lora/gemma-270m-lora. The file's weights are rounded to bfloat16 and all
is computed in float32.
"""

import json
import pathlib
import shutil
import sys
import warnings

import peft
import torch
import transformers
from safetensors.torch import load_file, save_file

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()
torch.set_num_threads(2)

GREEDY = 24
ADAPTER = "gemma-270m-lora"
PROMPTS = {
    "capital": "The capital of France is",
    "code": "def fibonacci(n):\n    \"\"\"The n-th number.\"\"\"\n",
    "german": "Die Donau entspringt im Schwarzwald und mündet",
    "japanese": "東京は日本の首都であり、",
    "short": "a",
    # Beyond the window of 512 tokens.
    "long": " ".join(f"On day {day} the ship made {7 * day % 50 + 3} miles." for day in range(1, 60)) + " On day 60 the ship made",
}
# No "▁": the family's own tokenizer has tokens of runs of them, which GGUF files hold as spaces, and readers differ.
TEXTS = [*PROMPTS.values(), "", " ", "   two  spaces ", "\n\n\t\n", "It's 3:45pm; I'd've said 1234567.89 isn't 10% of  that…", "naïve café cafe\u0301",
         "Ελληνικά Привет שלום عليكم नमस्ते ไทย 한국어", "🙂👩‍👩‍👧 \U0001f3f4\U000e0067", "<start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n",
         "<bos><eos><pad><unk>", "x" * 300, "\x00\x07\u200b\ufeff", "<0x41>", "http://example.com/a?b=c&d=%20"]


def answer(model, ids):
    """Greedy tokens, the first step's best logits, and by how much each step's best beats its second."""
    greedy, gaps = [], []
    cache, step = None, torch.tensor([ids])
    for i in range(GREEDY):
        out = model(input_ids=step, past_key_values=cache, use_cache=True)
        logits, cache = out.logits[0, -1].double(), out.past_key_values
        best = torch.topk(logits, 10)
        if i == 0:
            first = {"ids": best.indices.tolist(), "values": [round(v, 5) for v in best.values.tolist()]}
            total = round(torch.logsumexp(logits, 0).item(), 5)
        greedy.append(best.indices[0].item())
        gaps.append(round((best.values[0] - best.values[1]).item(), 5))
        step = torch.tensor([[greedy[-1]]])
    return {"greedy_ids": greedy, "top10": first, "logsumexp": total, "gaps": gaps}


def draw_adapter(model, folder):
    config = peft.LoraConfig(r=2, lora_alpha=4, layers_to_transform=[0, 5, 17], task_type="CAUSAL_LM",
                             target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"])
    torch.manual_seed(1)
    adapted = peft.get_peft_model(model, config)
    with torch.no_grad():
        for name, weight in adapted.named_parameters():
            if "lora_" in name:
                weight.copy_((torch.randn_like(weight) * (0.02 if "lora_B" in name else weight.shape[-1] ** -0.5)).bfloat16())
    shutil.rmtree(folder, ignore_errors=True)
    adapted.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    file = folder / "adapter_model.safetensors"
    save_file({name: weight.bfloat16() for name, weight in load_file(file).items()}, file)
    settings = json.loads((folder / "adapter_config.json").read_text())
    settings["base_model_name_or_path"] = "google/gemma-3-270m"
    (folder / "adapter_config.json").write_text(json.dumps(settings, indent=2) + "\n")
    return adapted


def main():
    file, data = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    tokenizer = transformers.AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    with open(data / "text/goldens/tokenizer-gemma-270m.jsonl", "w") as out:
        for i, text in enumerate(TEXTS):
            ids = tokenizer(text, add_special_tokens=False).input_ids
            row = {"id": f"text-{i}", "text": text, "ids": ids, "decoded": tokenizer.decode(ids, clean_up_tokenization_spaces=False)}
            out.write(json.dumps(row) + "\n")
    model = transformers.AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(weight.bfloat16())
    rows = []
    with torch.inference_mode():
        for name, chosen in (("base", model), (ADAPTER, None)):
            if chosen is None:
                with torch.inference_mode(False):
                    chosen = draw_adapter(model, data / "lora" / ADAPTER).eval()
            for prompt_id, prompt in PROMPTS.items():
                ids = tokenizer(prompt).input_ids
                rows.append({"adapter": name, "prompt_id": prompt_id, "prompt_ids": ids} | answer(chosen, ids))
    with open(data / "goldens/gemma-270m.jsonl", "w") as out:
        for row in rows:
            out.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
