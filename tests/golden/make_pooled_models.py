#!/usr/bin/env python3
"""Makes tiny random models that give embeddings or classes, an adapter of each, and what transformers and PEFT answer with them.

usage: make_pooled_models.py DATA_DIR
Needs torch, transformers and peft as ./dev peft installs them. Writes DATA_DIR/pooled: a folder a model, its adapter within, and
goldens.jsonl. The tokenizer is that of models/tiny-llama3. All is computed in float32 on weights that are bfloat16's.
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
torch.set_num_threads(1)

VOCABULARY = 4096
SIZES = dict(hidden_size=32, intermediate_size=64, num_attention_heads=4, num_key_value_heads=2, head_dim=16, vocab_size=VOCABULARY,
             max_position_embeddings=512, pad_token_id=0, bos_token_id=3988, eos_token_id=3989)
# A window that prompts reach beyond on both sides.
GEMMA = dict(SIZES, num_hidden_layers=3, layer_types=["sliding_attention", "full_attention", "sliding_attention"], sliding_window=12,
             query_pre_attn_scalar=16, use_bidirectional_attention=True)
QWEN3 = dict(SIZES, num_hidden_layers=2, rope_theta=10000.0)
MODULES = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
MODELS = {
    # As EmbeddingGemma: a mean, and two dense layers behind it.
    "embedder": dict(model=transformers.Gemma3TextModel, config=transformers.Gemma3TextConfig, fields=GEMMA, task="FEATURE_EXTRACTION",
                     pooling="mean_tokens", also=("cls_token", "max_tokens"), dense=[(32, 48, False, "torch.nn.modules.linear.Identity"),
                                                   (48, 24, True, "torch.nn.modules.activation.Tanh")]),
    # As Qwen3-Embedding.
    "last_token": dict(model=transformers.Qwen3Model, config=transformers.Qwen3Config, fields=QWEN3, task="FEATURE_EXTRACTION",
                       pooling="lasttoken", dense=[]),
    "classes": dict(model=transformers.Qwen3ForSequenceClassification, config=transformers.Qwen3Config, task="SEQ_CLS",
                    fields=dict(QWEN3, id2label={0: "bad", 1: "so-so", 2: "good"}, label2id={"bad": 0, "so-so": 1, "good": 2})),
    "reranker": dict(model=transformers.LlamaForSequenceClassification, config=transformers.LlamaConfig, task="SEQ_CLS",
                     fields=dict(QWEN3, num_labels=1)),
}


def randomise(model):
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.copy_(1 + 0.1 * torch.randn_like(weight))
            else:
                weight.copy_(torch.randn_like(weight) * (0.15 if "embed" in name else 1.5 * weight.shape[-1] ** -0.5))
            weight.copy_(weight.bfloat16())


def make_dense(layers):
    made = []
    for inputs, outputs, bias, activation in layers:
        linear = torch.nn.Linear(inputs, outputs, bias=bias)
        randomise(linear)
        made.append((linear, activation))
    return made


# As sentence-transformers lays a model out.
def save_stages(folder, kind, dense):
    names = [("", "models.Transformer"), ("1_Pooling", "models.Pooling")]
    names += [(f"{i + 2}_Dense", "models.Dense") for i in range(len(dense))] + [(f"{len(dense) + 2}_Normalize", "models.Normalize")]
    (folder / "modules.json").write_text(json.dumps(
        [dict(idx=i, name=str(i), path=path, type=f"sentence_transformers.{name}") for i, (path, name) in enumerate(names)], indent=1))
    (folder / "1_Pooling").mkdir()
    modes = {f"pooling_mode_{mode}": mode == kind["pooling"] for mode in ("cls_token", "mean_tokens", "max_tokens", "lasttoken")}
    (folder / "1_Pooling/config.json").write_text(json.dumps(dict(word_embedding_dimension=32, **modes), indent=1))
    for i, (linear, activation) in enumerate(dense):
        stage = folder / f"{i + 2}_Dense"
        stage.mkdir()
        (stage / "config.json").write_text(json.dumps(
            dict(in_features=linear.in_features, out_features=linear.out_features, bias=linear.bias is not None,
                 activation_function=activation), indent=1))
        save_file({f"linear.{name}": weight.detach().contiguous() for name, weight in linear.named_parameters()},
                  stage / "model.safetensors")


POOLINGS = {"mean_tokens": lambda states: states.mean(0), "max_tokens": lambda states: states.max(0).values,
            "cls_token": lambda states: states[0], "lasttoken": lambda states: states[-1]}


def answer(model, kind, dense, ids, pooling=None):
    with torch.no_grad():
        out = model(input_ids=torch.tensor([ids]))
        if kind["task"] == "SEQ_CLS":
            return dict(classes=out.logits[0].tolist())
        pooled = POOLINGS[pooling or kind["pooling"]](out.last_hidden_state[0])
        for linear, activation in dense:
            pooled = linear(pooled)
            if activation.endswith("Tanh"):
                pooled = pooled.tanh()
        return dict(embedding=torch.nn.functional.normalize(pooled, dim=0).tolist())


def add_adapter(model, kind, folder):
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=4, lora_alpha=8, target_modules=MODULES, task_type=kind["task"]))
    with torch.no_grad():
        for name, weight in adapted.named_parameters():
            if "lora_" in name or "modules_to_save" in name:
                weight.copy_((torch.randn_like(weight) * 0.2).bfloat16())
    adapted.peft_config["default"].base_model_name_or_path = folder.parent.name
    adapted.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    return adapted


def make(name, kind, data, lines):
    torch.manual_seed(sum(name.encode()))
    folder = data / "pooled" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    model = kind["model"](kind["config"](**kind["fields"], attn_implementation="eager")).float().eval()
    randomise(model)
    dense = make_dense(kind.get("dense", []))
    prompts = [torch.randint(0, 3900, (count,)).tolist() for count in (1, 9, 40, 150)]
    for ids in prompts:
        lines.append(dict(model=name, prompt_token_ids=ids, **answer(model, kind, dense, ids)))
    for pooling in kind.get("also", ()):  # the same model, by another 1_Pooling/config.json
        for ids in prompts[:3]:
            lines.append(dict(model=f"{name} {pooling}", prompt_token_ids=ids, **answer(model, kind, dense, ids, pooling)))
    model.config.architectures = [kind["model"].__name__]
    model.save_pretrained(folder)
    weights = load_file(folder / "model.safetensors")
    save_file({key: weight.bfloat16() for key, weight in weights.items()}, folder / "model.safetensors", metadata={"format": "pt"})
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(data / "models/tiny-llama3" / file, folder / file)
    if "pooling" in kind:
        save_stages(folder, kind, dense)
    adapted = add_adapter(model, kind, folder / "adapter")
    for ids in prompts:
        lines.append(dict(model=name, adapter=True, prompt_token_ids=ids, **answer(adapted, kind, dense, ids)))
    for file in folder.rglob("*"):
        if file.is_file():
            file.chmod(0o644)


def main():
    data = pathlib.Path(sys.argv[1])
    lines = []
    for name, kind in MODELS.items():
        make(name, kind, data, lines)
    (data / "pooled/goldens.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    main()
