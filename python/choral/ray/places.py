"""Replicas, as the ingress sends requests to them: chosen by Ray Serve's router, with a place held there as long as the answer takes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import aiohttp
from ray import serve  # type: ignore[import-not-found,unused-ignore]

from choral.ray.asked import asked_of
from choral.ray.relay import HEADER
from choral.ray.wish import Wish

WAIT_S = 60  # for a replica that can take a request
CONNECT_S = 5
KEEPALIVE = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 3, "TCP_KEEPCNT": 3}  # a machine that is gone is missed after some 14 s


class Place:
    """A place at a replica. ended() gives it back."""

    def __init__(self, wish: Wish, held: AbstractAsyncContextManager[Any], selection: Any) -> None:
        self.id: str = selection.replica_id
        self.metadata: Mapping[str, Any] = selection.replica_metadata
        self._wish, self._held = wish, held
        self._waiting = wish.asked.prompt_tokens
        if wish.fleet is not None:
            wish.fleet.sent(self.id, wish.asked.adapters, wish.asked.prefixes, self._waiting)

    def url(self, path_and_query: str) -> str:
        return f"http://{self.metadata['host']}:{self.metadata['port']}{path_and_query}"

    def header(self) -> tuple[str, str]:
        return HEADER, " ".join([self.metadata["secret"], *(f"{piece:x}" for piece in self._wish.asked.prefixes)])

    def began(self) -> None:
        """The first of an answer came, or more of it."""
        if self._wish.fleet is not None and self._waiting:
            self._wish.fleet.began(self.id, self._waiting)
            self._waiting = 0

    def ended(self, broke: bool = False) -> None:
        if self._wish.fleet is not None:
            self._wish.fleet.ended(self.id, self._waiting, broke)
        # In the background: a replica that died answers late, or never.
        leaving = asyncio.ensure_future(self._held.__aexit__(None, None, None))
        LEAVING.add(leaving)
        leaving.add_done_callback(_left)


LEAVING: set[asyncio.Future[Any]] = set()  # the loop itself keeps no task alive


def _left(task: asyncio.Future[Any]) -> None:
    LEAVING.discard(task)
    if not task.cancelled():
        task.exception()  # of a replica that is gone: nobody is left to tell


class Places:
    def __init__(self, engines: serve.handle.DeploymentHandle) -> None:
        self._engines = engines
        self._base_names: frozenset[str] = frozenset()
        self.session: aiohttp.ClientSession

    async def open(self) -> None:
        connector = aiohttp.TCPConnector(limit=0, force_close=True, socket_factory=_make_socket)
        self.session = aiohttp.ClientSession(connector=connector, auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar(),
                                             timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S))

    async def close(self) -> None:
        await self.session.close()

    async def wish(self, fields: Mapping[str, Any] | None, body_bytes: int) -> Wish:
        if not self._base_names:  # any replica knows how clients call the base
            place = await self.take(Wish(asked_of(None, 0, ())))
            self._base_names = frozenset(place.metadata["base_names"])
            place.ended()
        return Wish(asked_of(fields, body_bytes, self._base_names))

    async def take(self, wish: Wish) -> Place:
        """TimeoutError: no replica can take it."""
        held = self._engines.choose_replica(wish)
        return Place(wish, held, await asyncio.wait_for(held.__aenter__(), WAIT_S))


def _make_socket(address: Any) -> socket.socket:
    made = socket.socket(family=address[0], type=address[1], proto=address[2])
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for name, value in KEEPALIVE.items():
        made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return made
