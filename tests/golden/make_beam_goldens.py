#!/usr/bin/env python3
"""Makes what transformers' beam search answers: n-best lists with their scores, over beams, length penalties and early stopping.

usage: make_beam_goldens.py DATA_DIR [SMOLLM2.gguf]
Needs torch, transformers and peft as ./dev peft installs them, and gguf where a GGUF file is given. Writes DATA_DIR/goldens/beams.jsonl,
or with a file DATA_DIR/goldens/smollm2-beams.jsonl. All is computed in float32; a case whose list is another in float64 is left out, since
it hangs on a tie. Each prompt is searched once without an end first, and tokens of the lists found there are the ends of the others, so that
answers of all lengths compete.
"""

import itertools
import json
import pathlib
import sys
import warnings

import peft
import torch
import transformers

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

torch.set_num_threads(1)  # matrices are too small for more

VOCABULARY = 4000  # of the tiny models; special tokens follow
TINY = [("tiny-llama3", "tiny-llama3-lora-all"), ("tiny-gemma3", "tiny-gemma3-lora-all")]
TOKENS = 12
TEXTS = ["Once upon a time, there was a little girl who"]


def random_prompt(length, seed):
    ids = []
    for _ in range(length):
        seed = (seed * 1664525 + 1013904223) % 2**32
        ids.append((seed >> 8) % VOCABULARY)
    return ids


def search(model, prompt, beams, length_penalty, early_stopping, ends, min_tokens=0):
    model.generation_config.eos_token_id = None
    model.config.eos_token_id = None
    with torch.no_grad():
        out = model.generate(
            input_ids=torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long), num_beams=beams, num_return_sequences=beams, do_sample=False,
            max_new_tokens=TOKENS, length_penalty=length_penalty, early_stopping=early_stopping, eos_token_id=ends or None,
            pad_token_id=0, min_new_tokens=min_tokens or None, output_scores=True, return_dict_in_generate=True, repetition_penalty=1.0)
    # Where an answer ends is told by its beams: padding is a token like any other.
    lengths = (out.beam_indices >= 0).sum(dim=1).tolist()
    answers = [ids[len(prompt) : len(prompt) + length].tolist() for ids, length in zip(out.sequences, lengths)]
    return answers, out.sequences_scores.tolist()


def cases_of(single, double, name, adapter, prompts):
    for prompt in prompts:
        free, _ = search(single, prompt, 8, 1.0, False, None)
        ends = sorted({answer[place] for answer, place in ((free[0], 3), (free[3], 5), (free[7], 8))})
        grid = list(itertools.product((2, 4, 8), (0.5, 1.0, 2.0), (True, False, "never"), (ends,), (0,)))
        grid += [(4, 0.0, "never", ends, 0), (4, -1.0, "never", ends, 0), (4, 1.0, False, [], 0), (4, 1.0, True, ends, 5), (3, 1.0, False, ends[:1], 0)]
        for beams, length_penalty, early_stopping, ids, min_tokens in grid:
            wanted = (prompt, beams, length_penalty, early_stopping, ids, min_tokens)
            answers, scores = search(single, *wanted)
            if search(double, *wanted)[0] != answers:
                print("a tie:", name, adapter, *wanted[1:])
                continue
            yield {"model": name, "adapter": adapter, "prompt_ids": prompt, "beams": beams, "length_penalty": length_penalty,
                   "early_stopping": early_stopping, "stop_ids": ids, "min_tokens": min_tokens, "max_tokens": TOKENS,
                   "answers": answers, "scores": [round(score, 6) for score in scores]}


def load(path, adapter, dtype):
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=dtype)
    return (model if adapter is None else peft.PeftModel.from_pretrained(model, adapter).merge_and_unload()).to(dtype).eval()


def tiny_cases(data):
    for name, adapter in TINY:
        for used in (None, data / "lora" / adapter):
            models = [load(data / "models" / name, used, dtype) for dtype in (torch.float32, torch.float64)]
            yield from cases_of(*models, name, used.name if used else "base", [random_prompt(5, 3), random_prompt(40, 4)])


def gguf_cases(path):
    tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    models = [transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).to(dtype).eval()
              for dtype in (torch.float32, torch.float64)]
    yield from cases_of(*models, "smollm2", "base", [tokenizer(text)["input_ids"] for text in TEXTS])


def main():
    data = pathlib.Path(sys.argv[1])
    cases = gguf_cases(pathlib.Path(sys.argv[2])) if len(sys.argv) > 2 else tiny_cases(data)
    out = data / "goldens" / ("smollm2-beams.jsonl" if len(sys.argv) > 2 else "beams.jsonl")
    lines = [json.dumps(case) + "\n" for case in cases]
    out.write_text("".join(lines), encoding="utf-8")
    print(f"{out}: {len(lines)} searches")


if __name__ == "__main__":
    main()
