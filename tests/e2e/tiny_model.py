"""Writes a tiny random Llama model in Hugging Face's layout: config.json, model.safetensors, tokenizer.json and a chat template;
and random adapters for it in PEFT's layout, strong enough to change what it says.

Its tokenizer is byte-level without merges: id = byte, 256 = <s>, 257 = </s>. The weights come from a fixed seed, so every run and
every machine has the same model; what it says is noise.
"""

import json
import pathlib
import random
import struct

HIDDEN, INTERMEDIATE, LAYERS, HEADS, KV_HEADS, HEAD_DIM = 64, 96, 2, 4, 2, 16
VOCABULARY, BOS, EOS = 258, 256, 257
CONTEXT = 256
TEMPLATE = ("{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}\n{% endfor %}"
            "{% if add_generation_prompt %}<assistant>{% endif %}")


def byte_alphabet():
    """GPT-2's printable stand-in for each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spare = iter(range(256, 512))
    return [chr(b) if b in plain else chr(next(spare)) for b in range(256)]


def tensor_shapes():
    shapes = {"model.embed_tokens.weight": (VOCABULARY, HIDDEN), "model.norm.weight": (HIDDEN,), "lm_head.weight": (VOCABULARY, HIDDEN)}
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        shapes |= {
            at + "input_layernorm.weight": (HIDDEN,),
            at + "post_attention_layernorm.weight": (HIDDEN,),
            at + "self_attn.q_proj.weight": (HEADS * HEAD_DIM, HIDDEN),
            at + "self_attn.k_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            at + "self_attn.v_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            at + "self_attn.o_proj.weight": (HIDDEN, HEADS * HEAD_DIM),
            at + "mlp.gate_proj.weight": (INTERMEDIATE, HIDDEN),
            at + "mlp.up_proj.weight": (INTERMEDIATE, HIDDEN),
            at + "mlp.down_proj.weight": (HIDDEN, INTERMEDIATE),
        }
    return shapes


def write_safetensors(path, shapes, values_of):
    header, data = {}, bytearray()
    for name, shape in shapes.items():
        count = shape[0] * (shape[1] if len(shape) == 2 else 1)
        values = values_of(name, shape, count)
        begin = len(data)
        data += struct.pack(f"<{count}f", *values)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


# Of a model that fills gaps, in place of bytes that no text has.
FILL_IDS = range(1, 7)
FILL_TEXTS = ("<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<fim_pad>", "<reponame>", "<file_sep>")


def write_model(folder, context=CONTEXT, fills_gaps=False):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    source = random.Random(7)
    write_safetensors(folder / "model.safetensors", tensor_shapes(),
                      lambda name, shape, count: [1.0] * count if len(shape) == 1 else [source.uniform(-0.3, 0.3) for _ in range(count)])
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM,
        "vocab_size": VOCABULARY, "max_position_embeddings": context, "rope_theta": 10000.0, "rms_norm_eps": 1e-5,
        "hidden_act": "silu", "tie_word_embeddings": False, "bos_token_id": BOS, "eos_token_id": EOS, "torch_dtype": "float32",
    }
    (folder / "config.json").write_text(json.dumps(config))
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    fill = dict(zip(FILL_IDS, FILL_TEXTS)) if fills_gaps else {}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [{"id": i, "content": text, **special} for i, text in {**fill, BOS: "<s>", EOS: "</s>"}.items()],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False,
                  "vocab": {fill.get(i, c): i for i, c in enumerate(byte_alphabet())} | {"<s>": BOS, "</s>": EOS}, "merges": []},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "chat_template": TEMPLATE}))
    return folder


def write_adapter(folder, seed, rank=4, modules=("q_proj", "v_proj", "down_proj"), zero=False, break_at=None, **config):
    """`zero`: every B is zero. `break_at`: a tensor whose name ends so gets a NaN. `config` goes over adapter_config.json."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    shapes = {}
    for name, (out, width) in ((n, s) for n, s in tensor_shapes().items() if len(s) == 2):
        module = name.removesuffix(".weight")
        if module.rsplit(".", 1)[-1] in modules:
            shapes[f"base_model.model.{module}.lora_A.weight"] = (rank, width)
            shapes[f"base_model.model.{module}.lora_B.weight"] = (out, rank)
    source = random.Random(seed)

    def values(name, _, count):
        out = [0.0 if zero and "lora_B" in name else source.uniform(-0.4, 0.4) for _ in range(count)]
        if break_at and name.endswith(break_at):
            out[count // 2] = float("nan")
        return out

    write_safetensors(folder / "adapter_model.safetensors", shapes, values)
    (folder / "adapter_config.json").write_text(json.dumps({
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank, "lora_alpha": 2 * rank, "target_modules": list(modules), "bias": "none",
        "lora_dropout": 0.05, "inference_mode": True, "base_model_name_or_path": "someone/Tiny", **config}))
    return folder


def add_own_tokens(folder, *texts, seed=9):
    """Gives the adapter in `folder` a token for each of the texts, behind the base's, with its rows."""
    folder = pathlib.Path(folder)
    source = random.Random(seed)
    write_safetensors(folder / "new_embeddings.safetensors", {name: (len(texts), HIDDEN) for name in ("input_embeddings", "output_embeddings")},
                      lambda name, shape, count: [source.uniform(-0.3, 0.3) for _ in range(count)])
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"added_tokens_decoder": {str(VOCABULARY + i): {"content": text, "special": False} for i, text in enumerate(texts)}}))
    return folder


def write_gguf_adapter(path, folder, rows_of_head=HEAD_DIM):
    """The adapter in `folder` as llama.cpp's converter writes it: its names, and each head's rows of q's and k's B side by side in
    pairs (j, j + half)."""
    names = {"q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output", "gate_proj": "ffn_gate",
             "up_proj": "ffn_up", "down_proj": "ffn_down"}
    raw = (pathlib.Path(folder) / "adapter_model.safetensors").read_bytes()
    begin = 8 + struct.unpack_from("<Q", raw)[0]
    alpha = json.loads((pathlib.Path(folder) / "adapter_config.json").read_text())["lora_alpha"]

    def text(value):
        return struct.pack("<Q", len(value)) + value.encode()

    infos, data = [], bytearray()
    for name, tensor in json.loads(raw[8:begin]).items():
        layer, module, part = name.split(".")[4], name.split(".")[6], name.split(".")[7][-1].lower()
        rows, cols = tensor["shape"]
        first, size = begin + tensor["data_offsets"][0], cols * 4
        order = range(rows)
        if part == "b" and module in ("q_proj", "k_proj"):
            half = rows_of_head // 2
            order = [head + side * half + j for head in range(0, rows, rows_of_head) for j in range(half) for side in (0, 1)]
        infos.append(text(f"blk.{layer}.{names[module]}.weight.lora_{part}") + struct.pack("<IQQIQ", 2, cols, rows, 0, len(data)))
        for row in order:
            data += raw[first + row * size:first + (row + 1) * size]
        data += b"\0" * (-len(data) % 32)
    metadata = [text(key) + struct.pack("<I", 8) + text(value) for key, value in
                {"general.architecture": "llama", "general.type": "adapter", "adapter.type": "lora"}.items()]
    metadata.append(text("adapter.lora.alpha") + struct.pack("<If", 6, alpha))
    out = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(metadata)) + b"".join(metadata) + b"".join(infos)
    pathlib.Path(path).write_bytes(out + b"\0" * (-len(out) % 32) + data)
    return path


if __name__ == "__main__":
    import sys
    write_model(sys.argv[1])
