"""The fleet's door, an ASGI application: each request goes to a replica as it came, and its answer back as it is.

What a single server does not have: the replica is chosen by the request's adapter and prompt, a request whose replica dies is sent to
another one, a stream goes on there where it was cut, and what changes adapters goes to all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from ray import serve  # type: ignore[import-not-found,unused-ignore]

from choral.ray import asked, changes
from choral.ray.everywhere import change_all
from choral.ray.passage import Failed, Passage, Reply
from choral.ray.places import Places
from choral.ray.story import Story

log = logging.getLogger("ray.serve")
MOST_BODY_BYTES = 64 << 20  # the server takes 32 MiB
NOT_FOR_FLEETS = {
    "/lora-adapters": "scales for all requests are one server's: name the factor in the request ('lora': [{'name', 'scale'}])",
}

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Ingress:
    """The deployment."""

    def __init__(self, engines: serve.handle.DeploymentHandle) -> None:
        self._engines = engines

    def __serve_build_asgi_app__(self) -> Door:
        return Door(self._engines)


class Door:
    def __init__(self, engines: serve.handle.DeploymentHandle) -> None:
        self._engines = engines
        self._places = Places(engines)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close"})
            return
        reply = Reply(send)
        path = scope["path"].removeprefix(scope.get("root_path", "").rstrip("/"))
        if (body := await _read(receive)) is None:
            return await reply.error(413, "too_large", f"the body has more than {MOST_BODY_BYTES} bytes")
        fields = asked.read_object(body) if scope["method"] == "POST" else None
        if scope["method"] == "POST" and path in NOT_FOR_FLEETS:
            return await reply.error(501, "unsupported", f"{path} changes one replica of a fleet: {NOT_FOR_FLEETS[path]}")
        if fields is not None and path in changes.PATHS:
            return await change_all(self._engines, path, fields, scope, reply)
        wish = await self._places.wish(fields, len(body))
        story = Story(fields, body) if fields is not None and asked.can_move(path, fields) else None
        passage = Passage(self._places, scope, path, body, wish, story, reply)
        # A client that leaves ends its generation.
        passing, leaving = asyncio.ensure_future(passage.run()), asyncio.ensure_future(_until_gone(receive))
        try:
            await asyncio.wait((passing, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            if not passing.done():
                passing.cancel()
            await asyncio.gather(passing, leaving, return_exceptions=True)
        if not passing.cancelled() and (error := passing.exception()) is not None:
            if not isinstance(error, Failed):
                raise error
            log.error("%s %s: %s", scope["method"], path, error)
            await reply.fail(503, "unavailable", str(error))

    async def _live(self, receive: Receive, send: Send) -> None:
        while (message := await receive())["type"] == "lifespan.startup":
            await self._places.open()
            await send({"type": "lifespan.startup.complete"})
        await self._places.close()
        await send({"type": message["type"] + ".complete"})


async def _read(receive: Receive) -> bytes | None:
    """None: it is too long, or the client left."""
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if message["type"] != "http.request" or len(body) > MOST_BODY_BYTES:
            return None
        if not message.get("more_body"):
            return bytes(body)


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
