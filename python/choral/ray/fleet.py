"""What a router knows of its replicas: what each one told of itself a second or so ago, and what this router has sent it since.

Both are needed. What was told covers the other routers and the replicas' evictions; what was sent keeps a burst of requests for one
adapter together before anybody has told of it. Thread-safe: a request is routed on one thread and comes to its end on another.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from choral.ray import policy

HORIZON_S = 3.0  # until what was sent shows in what is told
AVOID_S = 5.0  # one that broke a connection is the last choice so long; until then its health is told, or it is gone
MOST_SENT = 8192  # names and pieces remembered for each replica


class Sent:
    """Names or pieces that were sent to a replica within the horizon."""

    def __init__(self) -> None:
        self._times: dict[Any, float] = {}

    def add(self, things: Iterable[Any], now: float) -> None:
        for thing in things:
            self._times.pop(thing, None)
            self._times[thing] = now
        while self._times:  # the oldest is the first
            oldest = next(iter(self._times))
            if self._times[oldest] > now - HORIZON_S and len(self._times) <= MOST_SENT:
                break
            del self._times[oldest]

    def has(self, thing: Any, now: float) -> bool:
        return self._times.get(thing, -HORIZON_S) > now - HORIZON_S


class FleetMember:
    """One replica; policy.Member."""

    def __init__(self, id: str, clock: Callable[[], float]) -> None:
        self.id = id
        self.answers = 0  # of this router, under way
        self.waiting_tokens = 0  # of those, the prompts of which nothing has come
        self.adapters, self.prefixes = Sent(), Sent()
        self.avoid_until = 0.0
        self._clock = clock
        self._told: Mapping[str, Any] = {}
        self._told_adapters: frozenset[str] = frozenset()
        self._told_prefixes: frozenset[int] = frozenset()

    def tell(self, stats: Mapping[str, Any]) -> None:
        if stats is self._told:
            return
        self._told = stats
        self._told_adapters = frozenset(stats.get("adapters", ()))
        self._told_prefixes = frozenset(stats.get("prefixes", ()))

    def load(self) -> int:
        # The larger one: the same requests may be in both.
        answers = max(self.answers, self._told.get("answers", 0))
        waiting_tokens = max(self.waiting_tokens, self._told.get("waiting_tokens", 0))
        return int(waiting_tokens + policy.ANSWER_TOKENS * answers)

    def holds(self, adapters: Sequence[str]) -> bool:
        now = self._clock()
        return all(name in self._told_adapters or self.adapters.has(name, now) for name in adapters)

    def cached(self, prefixes: Sequence[int]) -> int:
        now = self._clock()
        for count, piece in enumerate(prefixes):
            if piece not in self._told_prefixes and not self.prefixes.has(piece, now):
                return count
        return len(prefixes)


class Fleet:
    def __init__(self, clock: Callable[[], float] = time.monotonic, draw: random.Random | None = None) -> None:
        self._members: dict[str, FleetMember] = {}
        self._clock = clock
        self._draw = draw or random.Random()
        self._lock = threading.Lock()

    def order(self, told: Mapping[str, Mapping[str, Any]], adapters: Sequence[str], prefixes: Sequence[int],
              without: Iterable[str] = ()) -> list[str]:
        """`told`: of all replicas by their ids, what each said of itself. Those to try, the best first."""
        with self._lock:
            self._members = {id: self._members.get(id) or FleetMember(id, self._clock) for id in told}
            for id, stats in told.items():
                self._members[id].tell(stats)
            now = self._clock()
            candidates = [self._members[id] for id in told if id not in without]
            sound = [member for member in candidates if member.avoid_until <= now]
            broken = [member.id for member in candidates if member.avoid_until > now]
            return [member.id for member in policy.preference(sound, adapters, prefixes, self._draw)] + broken

    def sent(self, id: str, adapters: Sequence[str], prefixes: Sequence[int], prompt_tokens: int) -> None:
        with self._lock:
            if member := self._members.get(id):
                now = self._clock()
                member.answers += 1
                member.waiting_tokens += prompt_tokens
                member.adapters.add(adapters, now)
                member.prefixes.add(prefixes, now)

    def began(self, id: str, prompt_tokens: int) -> None:
        """The first of an answer came."""
        with self._lock:
            if member := self._members.get(id):
                member.waiting_tokens -= prompt_tokens

    def ended(self, id: str, prompt_tokens_waiting: int, broke: bool) -> None:
        """`prompt_tokens_waiting`: of one that never began."""
        with self._lock:
            if member := self._members.get(id):
                member.answers -= 1
                member.waiting_tokens -= prompt_tokens_waiting
                if broke:
                    member.avoid_until = self._clock() + AVOID_S
