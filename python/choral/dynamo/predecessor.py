"""Where the prompt of a migrated request ends.

Dynamo's frontend gives a request whose worker died to another one as prompt and answer so far in one list. What the first worker
says of itself in `worker_trace_link` comes with it as `migration_link`: so a worker writes there how long the prompt is, in half of
a span's id, and a check of the request and its prompt in the other half.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

_HALF = 8  # hexadecimal digits


def link_of(request_id: str, trace_id: str | None, prompt: Sequence[int]) -> dict[str, str]:
    """For the frontend, of an answer to this prompt."""
    own_trace = blake2b(request_id.encode(), digest_size=16).hexdigest()
    return {"trace_id": trace_id or own_trace, "span_id": _check(request_id, prompt) + f"{len(prompt):0{_HALF}x}"}


def prompt_length(request_id: str, link: Any, token_ids: Sequence[int]) -> int:
    """How many of the tokens are the prompt: all of them, unless another worker of ours began with fewer."""
    span = link.get("span_id") if isinstance(link, Mapping) else None
    if not isinstance(span, str) or len(span) != 2 * _HALF:
        return len(token_ids)
    try:
        length = int(span[_HALF:], 16)
    except ValueError:
        return len(token_ids)
    is_ours = length <= len(token_ids) and span[:_HALF] == _check(request_id, token_ids[:length])
    return length if is_ours else len(token_ids)


def _check(request_id: str, prompt: Sequence[int]) -> str:
    return blake2b(array("I", prompt).tobytes(), digest_size=_HALF // 2, key=request_id.encode()[:64]).hexdigest()
