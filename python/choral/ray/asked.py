"""What a router reads in a request: the adapters that it names, digests of its prompt's beginning, and whether its answer can move.

A prompt's pieces are of its text, or token ids, as the body has them: no tokenizer is needed, and equal beginnings have equal
digests. Each digest covers all pieces before it, the adapters and the cache_salt, as the engine's prefix cache does. Bodies that cannot
be read are passed on as they are, since the engine says what is wrong with them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

PIECE_CHARACTERS, PIECE_IDS = 256, 64  # about 64 tokens
MOST_PIECES = 16  # about the first 1,024 tokens
CHARACTERS_A_TOKEN = 4

# The fields of all APIs that make a prompt, in the order in which templates put them.
PROMPT_FIELDS = ("tools", "system", "instructions", "messages", "input", "prompt", "input_prefix")
MOVING_PATHS = frozenset({"/v1/completions", "/v1/chat/completions"})


class Asked:
    """`adapters`: names, empty for the base. `prefixes`: digests of the prompt's pieces. `prompt_tokens`: a guess."""

    def __init__(self, adapters: Sequence[str] = (), prefixes: Sequence[int] = (), prompt_tokens: int = 0) -> None:
        self.adapters = tuple(adapters)
        self.prefixes = tuple(prefixes)
        self.prompt_tokens = prompt_tokens


def read_object(body: bytes) -> dict[str, Any] | None:
    """None: it is no JSON object."""
    if not body.lstrip()[:1] == b"{":
        return None
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def asked_of(fields: Mapping[str, Any] | None, body_bytes: int, base_names: Collection[str]) -> Asked:
    if fields is None:
        return Asked()
    adapters = adapters_of(fields, base_names)
    salt = json.dumps([adapters, fields.get("cache_salt")])
    return Asked(adapters, prefixes_of(fields, salt), body_bytes // CHARACTERS_A_TOKEN)


def adapters_of(fields: Mapping[str, Any], base_names: Collection[str]) -> list[str]:
    """Of `model`, and of `lora`: a name, or a list of names or objects, or an object of factors by name."""
    names = []
    model, lora = fields.get("model"), fields.get("lora")
    if isinstance(model, str) and model and model not in base_names:
        names.append(model)
    if isinstance(lora, str):
        lora = [lora]
    for entry in lora if isinstance(lora, (list, dict)) else ():
        name = entry.get("name") if isinstance(entry, dict) else entry
        if isinstance(name, str) and name not in names:
            names.append(name)
    return names


def prefixes_of(fields: Mapping[str, Any], salt: str) -> list[int]:
    digests: list[int] = []
    state = hashlib.blake2b(salt.encode(), digest_size=8).digest()
    for piece in _pieces(fields):
        state = hashlib.blake2b(state + piece, digest_size=8).digest()
        digests.append(int.from_bytes(state, "big"))
    return digests


def _pieces(fields: Mapping[str, Any]) -> list[bytes]:
    ids = fields.get("prompt")
    if isinstance(ids, list) and len(ids) == 1 and isinstance(ids[0], list):
        ids = ids[0]
    if isinstance(ids, list) and ids and all(type(id) is int for id in ids[: MOST_PIECES * PIECE_IDS]):
        whole = min(len(ids) // PIECE_IDS, MOST_PIECES)
        return [repr(ids[i * PIECE_IDS : (i + 1) * PIECE_IDS]).encode() for i in range(whole)]
    text, most = "", MOST_PIECES * PIECE_CHARACTERS
    for field in PROMPT_FIELDS:
        if len(text) < most and fields.get(field) is not None:
            text += f"\0{field}\0" + _text_of(fields[field], most)
    whole = min(len(text) // PIECE_CHARACTERS, MOST_PIECES)
    return [text[i * PIECE_CHARACTERS : (i + 1) * PIECE_CHARACTERS].encode("utf-8", "surrogatepass") for i in range(whole)]


def _text_of(value: Any, most: int) -> str:
    """Its beginning. Lists are read entry by entry, so that a conversation that grew begins as it did."""
    if isinstance(value, str):
        return value[:most]
    if not isinstance(value, list):
        return json.dumps(value)[:most]
    text = ""
    for entry in value:
        if len(text) >= most:
            break
        if isinstance(entry, dict) and isinstance(entry.get("content"), str):
            text += f"\0{entry.get('role')}\0{entry['content'][: most - len(text)]}"
        else:
            text += "\0" + (entry[:most] if isinstance(entry, str) else json.dumps(entry))
    return text


def can_move(path: str, fields: Mapping[str, Any] | None) -> bool:
    """Whether its stream may be asked for pieces to go on with elsewhere."""
    if fields is None or path not in MOVING_PATHS or fields.get("stream") is not True:
        return False
    prompt, options = fields.get("prompt"), fields.get("stream_options")
    several = isinstance(prompt, list) and len(prompt) > 1 and not all(type(id) is int for id in prompt)
    return not several and (options is None or isinstance(options, dict))
