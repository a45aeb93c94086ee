"""The pieces of prompts that a replica served lately, as far as its KV cache can hold them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from itertools import islice

from choral.ray.asked import PIECE_IDS

MOST_TOLD = 4096  # at most so many are told to routers, each second


class Prefixes:
    """The least recently served are forgotten first, as the cache evicts them. One thread at a time."""

    def __init__(self) -> None:
        self._pieces: OrderedDict[int, None] = OrderedDict()
        self._most = MOST_TOLD

    def set_cache(self, tokens: int) -> None:
        self._most = tokens // PIECE_IDS
        self._forget()

    def add(self, pieces: Iterable[int]) -> None:
        for piece in reversed(list(pieces)):  # a prompt's first piece outlives those behind it
            self._pieces[piece] = None
            self._pieces.move_to_end(piece)
        self._forget()

    def told(self) -> list[int]:
        return list(islice(reversed(self._pieces), MOST_TOLD))

    def _forget(self) -> None:
        while len(self._pieces) > self._most:
            self._pieces.popitem(last=False)
