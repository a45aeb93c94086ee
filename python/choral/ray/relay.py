"""The door of a replica for the fleet's own HTTP requests: TCP in front of its engine's unix socket.

A request's head must show the replica's secret, which the ingress knows from Ray, and may name the pieces of its prompt; that line is
taken out. All other bytes go through as they are, both ways. One request a connection: the end of either side is the end of both.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
from collections.abc import Callable, Iterable

HEADER = "X-Choral-Relay"  # SECRET, then pieces as hexadecimal digits, each behind a blank
MOST_HEAD_BYTES = 128 << 10  # the server's own limit is 64 KiB
HEAD_TIMEOUT_S = 10
READ_BYTES = 64 << 10


class Relay:
    def __init__(self, socket_path: str, secret: str, served: Callable[[Iterable[int]], None]) -> None:
        """`served` is told of the pieces of each request."""
        self._socket_path = socket_path
        self._secret = secret.encode()
        self._served = served
        self._server: asyncio.Server | None = None

    async def start(self, host: str) -> int:
        """Gives the port."""
        self._server = await asyncio.start_server(self._serve, host, 0, limit=MOST_HEAD_BYTES, backlog=1024)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def stop(self) -> None:
        """No more connections are taken; those that are there go on."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        engine: asyncio.StreamWriter | None = None
        try:
            head = self._admitted(await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HEAD_TIMEOUT_S))
            if head is None:
                return
            answers, engine = await asyncio.open_unix_connection(self._socket_path, limit=READ_BYTES)
            engine.write(head)
            ways = [asyncio.ensure_future(_pump(reader, engine)), asyncio.ensure_future(_pump(answers, writer))]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
        except (OSError, EOFError, asyncio.LimitOverrunError, asyncio.TimeoutError):
            pass  # to the other side it is a connection that broke
        finally:
            for side in (writer, engine):
                if side is not None:
                    with contextlib.suppress(OSError):
                        side.close()

    def _admitted(self, head: bytes) -> bytes | None:
        """The head without the relay's line; None: whoever sent it does not know the secret."""
        name = f"\r\n{HEADER}: ".lower().encode()
        begin = head.lower().find(name)
        if begin < 0:
            return None
        end = head.index(b"\r\n", begin + len(name))
        secret, *pieces = head[begin + len(name) : end].split(b" ")
        if not hmac.compare_digest(secret, self._secret):
            return None
        with contextlib.suppress(ValueError):
            self._served([int(piece, 16) for piece in pieces])
        return head[:begin] + head[end:]


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(READ_BYTES):
            writer.write(data)
            await writer.drain()
