"""How many replicas a fleet should have: more when prompts wait, fewer when nothing waits and one fewer could give all answers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol

BUSY_SHARE = 0.5  # of the places that remain, which the answers may take after a replica went


class Context(Protocol):
    """Of ray.serve.config.AutoscalingContext, what is read here."""

    current_num_replicas: int
    target_num_replicas: int
    aggregated_metrics: Mapping[str, Mapping[Any, float]] | None


class WaitingTokens:
    """`waiting_tokens`: of prompts that may wait at each replica; `places`: answers that one computes at a time."""

    def __init__(self, waiting_tokens: int, places: int) -> None:
        self._waiting_tokens = waiting_tokens
        self._places = places

    def __call__(self, context: Context) -> tuple[int, dict[str, Any]]:
        told = context.aggregated_metrics or {}
        waiting = sum(told.get("waiting_tokens", {}).values())
        answers = sum(told.get("answers", {}).values())
        now = context.target_num_replicas
        wanted = math.ceil(waiting / self._waiting_tokens)
        if wanted > now:
            return wanted, {}
        if waiting == 0 and now > 1 and answers <= BUSY_SHARE * self._places * (now - 1):
            return now - 1, {}
        return now, {}
