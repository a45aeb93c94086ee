#!/usr/bin/env python3
"""What people who train have in memory, and lm-eval, on this package: PeftModels of every kind beside their saved folders, to the bit;
loglikelihoods of choral.lm_eval, and of lm-eval's own vLLM model over choral.compat.vllm, beside lm-eval's transformers model.

usage: peft_side_by_side.py MODEL_DIR...
Needs torch, transformers, PEFT and lm-eval (run with 2.15, 5.23, 0.21.2, 0.4.13). Without them, here and in the Python that
CHORAL_PEFT_PYTHON names, it exits with 77: skipped.
"""

import os
import pathlib
import random
import sys
import tempfile

os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
try:
    import torch
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM
except ModuleNotFoundError as missing:
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
    import other_python
    other_python.go_on_elsewhere(missing, "; ./dev peft installs it")

import choral.compat.vllm  # noqa: E402, F401  before lm-eval looks for vllm
from choral import LLM, SamplingParams  # noqa: E402
from choral.lm_eval import ChoralLM  # noqa: E402
from lm_eval.models.vllm_causallms import VLLM  # noqa: E402

ITEMS, TOLERANCE = 50, 1e-3
WORDS = "the of and to in is was for on that by this with from at which 12 3.5 (a) sea, bird; “quoted” naïve über Ελλάδα 東京 \n x_y".split(" ")
KINDS = {
    "LoRA": {"target_modules": ["q_proj", "v_proj"]},
    "DoRA of all layers": {"target_modules": "all-linear", "use_dora": True},
    "rsLoRA, a rank of its own": {"target_modules": ["q_proj", "o_proj"], "use_rslora": True, "rank_pattern": {"o_proj": 2}},
    "a module that is saved whole": {"target_modules": ["v_proj"], "modules_to_save": ["lm_head"]},
    "embeddings": {"target_modules": ["q_proj", "embed_tokens"]},
    "biases": {"target_modules": ["q_proj"], "lora_bias": True},
}


def peft_models(path):
    """In memory and saved: the same content, by its digest, and the same answer."""
    params = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True)
    good = True
    with LLM(path, threads=2) as llm:
        for seed, (kind, config) in enumerate(KINDS.items()):
            for dtype in (torch.float32, torch.bfloat16):
                torch.manual_seed(seed)
                base = AutoModelForCausalLM.from_pretrained(path, dtype=dtype)
                model = get_peft_model(base, LoraConfig(r=4, lora_alpha=8, init_lora_weights=False, task_type="CAUSAL_LM", **config),
                                       autocast_adapter_dtype=False)
                with tempfile.TemporaryDirectory() as folder:
                    model.save_pretrained(folder)
                    llm.load_adapter("saved", folder, replace=True)
                    llm.load_adapter("memory", model, replace=True)
                    saved, memory = (llm.generate([1, 2, 3, 4, 5], params, lora_request=name)[0].outputs[0] for name in ("saved", "memory"))
                digests = {info.digest for info in llm.adapters()}
                same = len(digests) == 1 and saved.token_ids == memory.token_ids
                print(f"{os.path.basename(path)}: {kind}, {dtype}: {'the same' if same else 'DIFFERENT'}")
                good = good and same
    return good


def items(seed, kind="loglikelihood"):
    source = random.Random(seed)

    def text(fewest, most):
        return " ".join(source.choice(WORDS) for _ in range(source.randint(fewest, most)))

    if kind == "loglikelihood":
        return [Instance(kind, {}, (text(1, 40), " " + text(1, 12)), i) for i in range(ITEMS)]
    if kind == "loglikelihood_rolling":
        return [Instance(kind, {}, (text(1, 60),), i) for i in range(10)]
    # transformers' criterion finds a stop string in the name of a special token, too, which no text has: none of them holds these.
    return [Instance(kind, {}, (text(3, 20), {"until": ["w", "\n", "l"], "max_gen_toks": 12, "do_sample": False}), i) for i in range(10)]


def without(words, text):
    for word in words:
        text = text.replace(word, "")
    return text


def evaluations(path):
    reference = HFLM(pretrained=path, dtype="float32", device="cpu", batch_size=8)
    wanted = reference.loglikelihood(items(7), disable_tqdm=True)
    rolling = reference.loglikelihood_rolling(items(8, "loglikelihood_rolling"), disable_tqdm=True)
    texts = reference.generate_until(items(9, "generate_until"), disable_tqdm=True)
    special = reference.tokenizer.all_special_tokens
    good = True
    for name, make in {"choral": lambda: ChoralLM(path, threads=2), "vllm's": lambda: VLLM(pretrained=path, dtype="float32", threads=2)}.items():
        model = make()
        got = model.loglikelihood(items(7), disable_tqdm=True)
        far = max(abs(a - b) for (a, _), (b, _) in zip(got, wanted))
        greedy = sum(a != b for (_, a), (_, b) in zip(got, wanted))
        farther = max(abs(a - b) for a, b in zip(model.loglikelihood_rolling(items(8, "loglikelihood_rolling"), disable_tqdm=True), rolling))
        # lm-eval's vLLM model leaves special tokens in the text, its transformers model does not.
        other = sum(without(special, a) != b for a, b in zip(model.generate_until(items(9, "generate_until"), disable_tqdm=True), texts))
        print(f"{os.path.basename(path)}: {name}: furthest {far:.2e} and {farther:.2e} of {TOLERANCE}, {greedy} disagree about greedy, "
              f"{other} of {len(texts)} texts differ")
        good = good and far < TOLERANCE and farther < TOLERANCE and greedy == 0 and other == 0
    return good


def main():
    return 0 if all([peft_models(path) & evaluations(path) for path in sys.argv[1:]]) else 1


if __name__ == "__main__":
    sys.exit(main())
