"""Writes a tiny model that says what a test wrote: the prompt's last byte chooses a script, and the answer is that script, token by
token, to its end. Greedily: each token has one that follows it, whatever stood before, so no token stands in two scripts or twice,
and none is one byte, for these are tokens already."""

import json
import pathlib

import tiny_model
from tiny_model import EOS, HIDDEN, VOCABULARY

TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}{{ messages[-1].content[-1] }}"


def write_scripted_model(folder, scripts, template=TEMPLATE, special=(), context=2048, end=EOS):
    """`scripts`: {last byte: [token's text, …]}. Texts in `special` are special tokens. The model is in Hugging Face's layout."""
    folder = tiny_model.write_model(folder, context)
    texts = [text for script in scripts.values() for text in script]
    assert len(set(texts)) == len(texts) and len(texts) + len(scripts) <= HIDDEN and all(len(text) > 1 for text in texts), texts
    ids = {text: VOCABULARY + i for i, text in enumerate(texts)}
    # Each token that something follows has a direction of its own; all others have that of nothing.
    direction, follower = {}, {}
    for byte, script in scripts.items():
        chain = [ord(byte), *(ids[text] for text in script), end]
        for at, after in zip(chain, chain[1:]):
            direction[at], follower[len(direction) - 1] = len(direction), after
    size = VOCABULARY + len(texts)

    def values(name, shape, count):
        if len(shape) == 1:
            return [1.0] * count
        out = [0.0] * count
        if name == "model.embed_tokens.weight":
            for token, at in direction.items():
                out[token * HIDDEN + at] = 1.0
        if name == "lm_head.weight":
            for at, token in follower.items():
                out[token * HIDDEN + at] = 1.0
        return out

    shapes = {name: (size, HIDDEN) if name in ("model.embed_tokens.weight", "lm_head.weight") else shape
              for name, shape in tiny_model.tensor_shapes().items()}
    tiny_model.write_safetensors(folder / "model.safetensors", shapes, values)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "vocab_size": size}))
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    for text, token in ids.items():
        tokenizer["added_tokens"].append({"id": token, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
                                          "normalized": False, "special": text in special})
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False), encoding="utf-8")
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "chat_template": template}))
    return pathlib.Path(folder)
