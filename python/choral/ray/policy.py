"""Which replica answers a request: one that holds its adapter; of these the one with the longest cached beginning of its prompt; of
equals the one with less work before it, of two that are drawn.

An adapter that no replica holds has a home, by rendezvous hashing of its name over the replicas, so a long tail of adapters is divided
among them and not loaded everywhere. An adapter whose holders all have more to do than the fleet's least goes to one more replica, the
next in its own order: hot ones spread, cold ones stay where they are. Plain Python; no clock, no state.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from typing import Protocol, TypeVar

ANSWER_TOKENS = 32  # of a prompt, that one answer which is being given delays a new one as much as
SLACK_TOKENS = 1024  # of work; whoever has so much more than twice the least is passed over


class Member(Protocol):
    """A replica as the router knows it."""

    @property
    def id(self) -> str: ...

    def load(self) -> int:
        """Tokens of work before a new request."""

    def holds(self, adapters: Sequence[str]) -> bool:
        """Whether all of them are in its memory, or on their way there."""

    def cached(self, prefixes: Sequence[int]) -> int:
        """How many of a prompt's pieces it has, from the first on."""


M = TypeVar("M", bound=Member)


def home_order(name: str, members: Sequence[M]) -> list[M]:
    """The members in the order of an adapter's own: the first is its home. One that comes or goes moves no other."""

    def weight(member: M) -> bytes:
        return hashlib.blake2b(f"{name}\0{member.id}".encode(), digest_size=8).digest()

    return sorted(members, key=weight, reverse=True)


def preference(members: Sequence[M], adapters: Sequence[str], prefixes: Sequence[int], draw: random.Random) -> list[M]:
    """The members in the order in which to try them."""
    if not members:
        return []
    loads = {member.id: member.load() for member in members}
    most = 2 * min(loads.values()) + SLACK_TOKENS
    holders = [member for member in members if not adapters or member.holds(adapters)]
    others = [member for member in members if member not in holders]
    if others:
        others = home_order("+".join(adapters), others)
    free_holders = [member for member in holders if loads[member.id] <= most]
    if free_holders:
        first = _best(free_holders, loads, prefixes, draw)
    else:  # the least loaded member is not passed over, so it is among the others
        first = next(member for member in others if loads[member.id] <= most)
    rest = sorted((member for member in holders if member is not first), key=lambda member: loads[member.id])
    return [first, *rest, *(member for member in others if member is not first)]


def _best(members: Sequence[M], loads: dict[str, int], prefixes: Sequence[int], draw: random.Random) -> M:
    cached = {member.id: member.cached(prefixes) for member in members}
    longest = max(cached.values())
    equals = [member for member in members if cached[member.id] == longest]
    return min(draw.sample(equals, min(2, len(equals))), key=lambda member: loads[member.id])
