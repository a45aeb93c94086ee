#!/usr/bin/env python3
"""Draws random adapters of every kind, saves them with PEFT, and holds Choral's answers to those of transformers and PEFT.

usage: against_peft.py CHORAL MODEL_DIR... [--adapters N] [--seed S] [--keep DIR]
Needs torch, transformers and peft (docs/adapters.md names the versions this was run with); `./dev peft` installs them. Without them, here
and in the Python that CHORAL_PEFT_PYTHON names, it exits with 77: skipped.

Each model gets N adapters of the projections that it has; of one with experts also of their parameters and of routers. All prompts
under all of them, and under the base, go into one run of `choral generate`: one mixed batch.
PEFT computes in double precision. An answer holds when its tokens are PEFT's up to the first tie and every log-probability of the
top 10 is within the tolerance at each step until then. Of an adapter that Choral refuses, the refusal is printed, and it counts as failed.
"""

import argparse
import collections
import copy
import json
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import warnings

try:
    import peft
    import safetensors.torch
    import torch
    import transformers
except ModuleNotFoundError as missing:
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
    import other_python
    other_python.go_on_elsewhere(missing, "; ./dev peft installs what the comparison needs (about 3 GB)")

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
torch.set_num_threads(1)

STEPS = 10
TIE, TOLERANCE, WORTH_TESTING = 1e-3, 3e-3, 2e-2
FILES_NAMES = {"PhiMoEForCausalLM": "PhimoeForCausalLM"}  # of classes, where files have another than transformers


class Parts:
    """What adapters of this model may name."""

    def __init__(self, model):
        def leaves(kind):
            return list(dict.fromkeys(name.split(".")[-1] for name, module in model.named_modules()
                                      if isinstance(module, torch.nn.Linear) and kind in name and ".indexer." not in name))

        self.attention = leaves(".self_attn.")
        self.mlp = [name for kind in (".mlp.", ".shared_mlp.", ".feed_forward.") for name in leaves(kind) if name != "router"]
        self.linear = self.attention + self.mlp + leaves(".per_layer_") + leaves(".linear_attn.") + leaves(".mamba.")
        of_layers = [name.split(".")[-1] for name, _ in model.named_modules() if ".layers." in name and name.endswith("layernorm")]
        self.idle = r".*\.indexer\..*" if any(".indexer." in name for name, _ in model.named_modules()) else None  # refused
        self.norms = [of_layers[0], "model.norm" if self.idle else "norm"]
        self.convolves = any(name.endswith("conv1d.bias") for name, _ in model.named_parameters())  # whose biases stay the base's
        stacked = [name.split(".layers.")[1].split(".", 1)[1] for name, _ in model.named_parameters()
                   if name.endswith((".experts.gate_up_proj", ".experts.down_proj", "mlp.gate.weight", "mlp.router.weight",
                                     "block_sparse_moe.router.weight", ".router.proj.weight"))]
        self.parameters = list(dict.fromkeys(stacked))
        self.routers = [name.removeprefix("mlp.").removesuffix(".weight") for name in self.parameters if name.endswith(".weight")]


def draw_targets(rnd, parts, layers):
    """target_modules, and what to call it."""
    some = sorted(rnd.sample(parts.linear, rnd.randint(1, min(4, len(parts.linear)))))
    last = parts.mlp[-1] if parts.mlp else parts.attention[-1]
    return rnd.choice([
        (some, "+".join(some)),
        (parts.linear, "all by name"),
        ("all-linear", "all-linear"),
        (r".*\.(self_attn|mlp|shared_mlp|linear_attn|mamba)\.(%s)" % "|".join(some), "regex " + "|".join(some)),
        (r"model\.layers\.[%s]\..*_proj" % "".join(map(str, rnd.sample(range(layers), 2))), "regex of layers"),
        ([f"layers.{rnd.randrange(layers)}.self_attn.{rnd.choice(parts.attention)}", last], "suffix paths"),
    ])


def draw_config(rnd, config, parts):
    """LoraConfig's arguments, and what is special about them."""
    layers = config.num_hidden_layers
    targets, name = draw_targets(rnd, parts, layers)
    rank = rnd.choice([1, 2, 3, 4, 8, 16, 31, 64])
    kinds = [f"r{rank}", name]
    args = {"r": rank, "lora_alpha": rnd.choice([1, 4, 8, 16, 32]), "target_modules": targets, "task_type": "CAUSAL_LM"}

    def with_chance(chance, kind, **more):
        if rnd.random() >= chance:
            return False
        args.update(more)
        kinds.append(kind)
        return True

    with_chance(0.25, "rsLoRA", use_rslora=True)
    stacked = sorted(rnd.sample(parts.parameters, rnd.randint(1, len(parts.parameters)))) if parts.parameters else []
    stacked = bool(stacked) and with_chance(0.5, "parameters " + "+".join(stacked), target_parameters=stacked)
    dora = not stacked and with_chance(0.2, "DoRA", use_dora=True)
    if with_chance(0.25, "rank_pattern", rank_pattern={rnd.choice(parts.linear): rnd.choice([2, 5, 12]),
                                                       rf"layers\.{rnd.randrange(layers)}\.mlp\.up_proj": 7}):
        with_chance(0.7, "alpha_pattern", alpha_pattern={rnd.choice(parts.linear): 3, f"self_attn.{rnd.choice(parts.attention)}": 24})
    if isinstance(targets, list) and not any("." in t for t in targets):
        some = sorted(rnd.sample(range(layers), 2))
        with_chance(0.2, "layers_to_transform", layers_to_transform=rnd.choice([some, some[0]]))
        if "layers_to_transform" in args:
            with_chance(0.5, "layers_pattern", layers_pattern="layers")
    if not dora and not stacked:
        with_chance(0.15, "lora_bias", lora_bias=True)
        if not parts.convolves and not parts.idle:
            with_chance(0.15, "bias all", bias="all")
    with_chance(0.1, "bias lora_only", bias="lora_only")
    if targets == "all-linear" or (isinstance(targets, list) and len(targets) > 2):
        with_chance(0.2, "exclude_modules", exclude_modules=rnd.choice([rnd.sample(parts.linear, 2), r".*layers\.1\..*"]))
    if isinstance(targets, list) and not dora and "layers_to_transform" not in args:
        with_chance(0.15, "embed_tokens", target_modules=args["target_modules"] + ["embed_tokens"])
        with_chance(0.15, "lm_head", target_modules=args["target_modules"] + ["lm_head"])
    taken = args["target_modules"] if isinstance(args["target_modules"], list) else []
    routers = parts.routers if not any(name.endswith(".weight") for name in args.get("target_parameters", [])) else []
    if not with_chance(0.15, f"modules_to_save {'+'.join(['norms', *routers])}", modules_to_save=[*parts.norms, *routers]):
        if "lm_head" not in taken:
            with_chance(0.1, "modules_to_save lm_head", modules_to_save=["lm_head"])
        if "embed_tokens" not in taken and "modules_to_save" not in args:
            with_chance(0.1, "modules_to_save embed_tokens", modules_to_save=["embed_tokens"])
    if "embed_tokens" not in taken and not str(args.get("modules_to_save", "")).count("embed_tokens"):
        some, others = (sorted(rnd.sample(range(config.vocab_size), 20)) for _ in range(2))
        of = some if getattr(config, "lm_head_bias", False) else rnd.choice([some, {"lm_head": some}, {"embed_tokens": some, "lm_head": others}, {"embed_tokens": some, "lm_head": some}])
        where = "+".join(of) if isinstance(of, dict) else "embed_tokens"
        with_chance(0.15, f"trainable tokens of {where}{', the same' if isinstance(of, dict) and len(set(map(str, of.values()))) < len(of) else ''}",
                    trainable_token_indices=of)
    # Latent attention moves kv_b_proj to the rows that look: it has one adapter for all tokens of a sequence.
    if not dora and len(kinds) == 2 and "kv_b_proj" not in parts.linear:
        with_chance(0.4, "aLoRA", alora_invocation_tokens=[rnd.randrange(10, 400) for _ in range(rnd.randint(1, 3))])
    if parts.idle:
        args["exclude_modules"] = parts.idle
    return args, kinds


def draw_own_tokens(rnd, config, args, kinds):
    """How many tokens the adapter brings. All that it takes to have their rows in the file is put into the arguments."""
    if getattr(config, "hidden_size_per_layer_input", 0):
        return 0  # PEFT does not save the rows that they have in the other embedding
    if getattr(config, "lm_head_bias", False):
        return 0  # PEFT saves a bias as long as the head, which is refused
    adapted = {"embed_tokens", "lm_head"} & set(args["target_modules"] if isinstance(args["target_modules"], list) else [])
    if adapted or rnd.random() >= 0.25 or {"alora_invocation_tokens", "trainable_token_indices", "modules_to_save"} & set(args):
        return 0
    own, form = rnd.choice([1, 3, 20]), rnd.choice(["saved layers", "modules_to_save", "pairs", "trained"])
    tied = config.tie_word_embeddings
    if form == "modules_to_save":
        args["modules_to_save"] = ["embed_tokens", "lm_head"]
    elif form == "pairs" and isinstance(args["target_modules"], list) and not args.get("use_dora") and not args.get("lora_bias"):
        args["target_modules"] = args["target_modules"] + ["embed_tokens", "lm_head"]
        args.pop("layers_to_transform", None), args.pop("layers_pattern", None)
    elif form == "trained":
        ids = [config.vocab_size + i for i in range(own)] + [17]
        args["trainable_token_indices"] = ids if tied else {"embed_tokens": ids, "lm_head": ids}
    else:
        form = "saved layers"
    kinds.append(f"{own} tokens of its own, {form}")
    return own


def resized(base, own):
    """The same rows for the new tokens each time."""
    model = copy.deepcopy(base)
    if own == 0:
        return model
    vocab = model.config.vocab_size
    model.resize_token_embeddings(vocab + own, mean_resizing=False)
    generator = torch.Generator().manual_seed(own)
    layers = {id(layer.weight): layer.weight for layer in (model.get_input_embeddings(), model.get_output_embeddings())}
    for weight in layers.values():
        weight.data[vocab:] = torch.randn(own, weight.shape[1], generator=generator).to(weight.dtype)
    return model


def disturb(model, rnd, scale):
    """Random values for everything that training would have changed, as strong as training makes them: an adapter that throws the
    model far off tests how float32 rounds, PEFT's own as much as Choral's."""
    generator = torch.Generator().manual_seed(rnd.randrange(1 << 30))
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        noise = torch.randn(parameter.shape, generator=generator)
        if "lora_embedding_A" in name or "lora_A" in name:
            parameter.data = noise * 0.3
        elif "lora_embedding_B" in name or ("lora_B" in name and name.endswith("weight")):
            parameter.data = noise * 0.1 / max(1, scale)
        elif "magnitude" in name:
            parameter.data = parameter.data * (1 + 0.3 * noise)
        else:
            parameter.data = parameter.data + noise * 0.2 * max(parameter.data.std().item() if parameter.numel() > 1 else 0, 0.05)


def save(model, folder, rnd, own):
    """In one of the forms in which adapters are found; says which. Copies of the base's values stay as they are."""
    def stored(tensors):
        return {name: t if own or "base_layer" in name or name.endswith("e_score_correction_bias") else t.to(dtype) for name, t in tensors.items()}

    dtype = rnd.choice([torch.float32, torch.bfloat16, torch.float16])
    form = rnd.choice(["safetensors", "safetensors", "bin"])
    model.save_pretrained(folder, safe_serialization=form == "safetensors", save_embedding_layers=True if own else rnd.choice(["auto", False]))
    if form == "safetensors":
        path = folder / "adapter_model.safetensors"
        safetensors.torch.save_file(stored(safetensors.torch.load_file(path)), path, metadata={"format": "pt"})
    else:
        path = folder / "adapter_model.bin"
        torch.save(stored(torch.load(path, weights_only=True)), path)
    return f"{form} {str(dtype)[6:]}"


def draw_prompts(rnd, config, invocation):
    prompts = []
    # longrope: transformers changes the factors where a text grows beyond the first positions, an engine for long ones has one form.
    scaling = getattr(config, "rope_parameters", None) or {}
    least = scaling.get("original_max_position_embeddings", 0) if scaling.get("rope_type") == "longrope" else 0
    if least >= config.max_position_embeddings:
        least = 0
    for length in (least + rnd.randint(1, 8), least + rnd.randint(20, 60)):
        prompt = [rnd.randrange(10, config.vocab_size - 10) for _ in range(length)]
        if invocation:
            at = rnd.randint(0, length)
            prompt[at:at] = invocation
        prompts.append(prompt)
    return prompts


@torch.no_grad()
def answer(model, prompt, invocation=None):
    """Greedy tokens and, of each step, the log-probabilities of the ten likeliest. An answer that says the invocation ends there: PEFT
    would look for it anew in prompt and answer, and act from there on."""
    ids, steps = list(prompt), []
    for _ in range(STEPS):
        if invocation and steps and ids[-len(invocation):] == invocation:
            break
        logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1]
        top = torch.topk(torch.log_softmax(logits, -1), 10)
        steps.append(dict(zip(top.indices.tolist(), top.values.tolist())))
        ids.append(top.indices[0].item())
    return {"tokens": ids[len(prompt):], "steps": steps}


@torch.no_grad()
def effect(base, prompt, adapted):
    """The most that the adapter changes of a log-probability at the first step."""
    plain = torch.log_softmax(base(input_ids=torch.tensor([prompt]), use_cache=False).logits[0, -1], -1)
    return max(abs(plain[token].item() - logprob) for token, logprob in adapted["steps"][0].items())


def make_case(base, parts, folder, rnd):
    """An adapter in `folder`, what is special about it, and its answers; None for what PEFT itself refuses."""
    args, kinds = draw_config(rnd, base.config, parts)
    invocation = args.get("alora_invocation_tokens")
    own = draw_own_tokens(rnd, base.config, args, kinds)
    try:
        model = peft.get_peft_model(resized(base, own), peft.LoraConfig(**args))
        disturb(model, rnd, args["lora_alpha"] / args["r"] ** (0.5 if args.get("use_rslora") else 1))
        kinds.append(save(model, folder, rnd, own))
        model = peft.PeftModel.from_pretrained(resized(base, own), folder).eval().double()
        prompts = draw_prompts(rnd, base.config, invocation)
        for prompt in prompts:
            for i in range(0, min(len(prompt), 2 * own), 2):
                prompt[i] = base.config.vocab_size + i // 2
        case = {"kinds": kinds, "prompts": prompts, "answers": [answer(model, prompt, invocation) for prompt in prompts]}
        return case | {"effect": max(effect(resized(base, own), prompt, wanted) for prompt, wanted in zip(prompts, case["answers"]))}
    except (ValueError, TypeError, NotImplementedError, KeyError, IndexError, AttributeError, RuntimeError) as error:
        print(f"  PEFT refuses {', '.join(kinds)}: {str(error).splitlines()[0][:140]}")
        return None


def compare(expected, got):
    """The largest difference up to the first tie; what is wrong, or None."""
    worst = 0.0
    for step, wanted in enumerate(expected["steps"]):
        here = {t["token_id"]: t["logprob"] for t in got["logprobs"][step]["top"]}
        least = min(here.values())
        for token, logprob in wanted.items():
            if token in here:
                worst = max(worst, abs(here[token] - logprob))
            elif logprob > least + TOLERANCE:
                return worst, f"step {step}: token {token} is missing in the top 10"
        if worst > TOLERANCE:
            return worst, f"step {step}: a log-probability is off by {worst:.2e}"
        if got["token_ids"][step] != expected["tokens"][step]:
            first, second = sorted(wanted.values(), reverse=True)[:2]
            return worst, None if first - second < TIE else f"step {step}: token {got['token_ids'][step]} for {expected['tokens'][step]}"
    return worst, None


def run_choral(choral, model_dir, folder, cases):
    """{adapter: [one result a prompt]}, all in one batch."""
    lines, flags = [], []
    for name, case in cases.items():
        if name != "base":
            flags += ["--lora", f"{name}={folder / name}"]
        for i, prompt in enumerate(case["prompts"]):
            line = {"id": f"{name}/{i}", "prompt_token_ids": prompt, "max_tokens": STEPS, "temperature": 0, "ignore_eos": True, "logprobs": 10}
            lines.append(json.dumps(line | ({} if name == "base" else {"lora": name})))
    source, target = folder / "in.jsonl", folder / "out.jsonl"
    source.write_text("\n".join(lines) + "\n")
    done = subprocess.run([choral, "generate", model_dir, "--input", source, "--output", target, "--kv-cache-dtype", "float32", *flags],
                          capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"choral generate: exit {done.returncode}\n{done.stderr[-3000:]}")
    results = collections.defaultdict(list)
    for line in target.read_text().splitlines():
        got = json.loads(line)
        results[got["id"].split("/")[0]].append(got)
    return results


def check_model(args, model_dir, folder, rnd):
    """How many adapters did not hold, of how many."""
    name = transformers.AutoConfig.from_pretrained(model_dir).architectures[0]
    model_class = getattr(transformers, FILES_NAMES.get(name, name))  # not all are an AutoModel's
    base = model_class.from_pretrained(model_dir, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager").eval()
    parts = Parts(base)
    print(f"{model_dir.name}: {args.adapters} adapters")
    prompts = draw_prompts(rnd, base.config, None)
    exact = copy.deepcopy(base).double()
    cases = {"base": {"kinds": ["base"], "prompts": prompts, "answers": [answer(exact, p) for p in prompts]}}
    failed = 0
    while len(cases) <= args.adapters:
        name = f"a{len(cases)}"
        case = make_case(base, parts, folder / name, rnd)
        if case is None:
            shutil.rmtree(folder / name, ignore_errors=True)
            continue
        cases[name] = case
    for name in list(cases)[1:]:
        done = subprocess.run([args.choral, "adapter", "check", folder / name, "--model", model_dir, "--json"], capture_output=True, text=True)
        if done.returncode:
            report = json.loads(done.stdout) if done.stdout else {"problems": [done.stderr]}
            print(f"  REFUSED  {name}: {', '.join(cases[name]['kinds'])}: {' | '.join(report['problems'])}")
            del cases[name]
            failed += 1
    results = run_choral(args.choral, model_dir, folder, cases)
    for name, case in cases.items():
        compared = [compare(want, got) for want, got in zip(case["answers"], results[name])]
        wrong = [problem for _, problem in compared if problem]
        if case.get("effect", 1) < WORTH_TESTING:
            wrong.append(f"the adapter changes {case['effect']:.1e} only, which proves nothing")
        failed += bool(wrong)
        print(f"  {'WRONG' if wrong else 'ok':8} {max(worst for worst, _ in compared):.1e} of {case.get('effect', 0):.1e}  {name}: {', '.join(case['kinds'])}  {'; '.join(wrong)}")
    return failed, args.adapters + 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("choral", type=lambda p: str(pathlib.Path(p).resolve()))
    parser.add_argument("models", nargs="+", type=pathlib.Path)
    parser.add_argument("--adapters", type=int, default=24, help="for each model (24)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=pathlib.Path, help="leave the adapters here")
    args = parser.parse_args()
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, peft {peft.__version__}; seed {args.seed}")
    failed = drawn = 0
    with tempfile.TemporaryDirectory() as temporary:
        for model_dir in args.models:
            folder = (args.keep or pathlib.Path(temporary)) / model_dir.name
            folder.mkdir(parents=True, exist_ok=True)
            wrong, of = check_model(args, model_dir, folder, random.Random(f"{args.seed} {model_dir.name}"))
            failed, drawn = failed + wrong, drawn + of
    print(f"{drawn - failed} hold, {failed} do not")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
