"""One request on its way through the fleet: to a replica, and to another one when that dies before its answer is complete."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from choral.ray.places import Place, Places
from choral.ray.story import Story
from choral.ray.wish import Wish

log = logging.getLogger("ray.serve")
MOST_MOVES = 4  # of one request: what kills each replica that it meets must not meet them all
HOP_BY_HOP = frozenset({"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
                        "transfer-encoding", "upgrade", "expect", "content-length"})
NOT_BACK = HOP_BY_HOP - {"content-length"} | {"x-request-id"}  # Ray's proxies add the same one
AUTOMATIC = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")
EVENTS = "text/event-stream"
REPLICA = b"x-choral-replica"  # of an answer: where it came from, or began

Message = MutableMapping[str, Any]
Headers = Iterable[tuple[bytes, bytes]]


class Failed(Exception):
    """No replica gave the answer, or the rest of it."""


class Cut(Exception):
    """A stream ended before its answer did."""


class Reply:
    """What the client gets."""

    def __init__(self, send: Callable[[Message], Awaitable[None]]) -> None:
        self._send = send
        self.kind = ""  # Content-Type; empty: nothing was sent

    async def start(self, status: int, headers: Headers) -> None:
        fields = [(name.lower(), value) for name, value in headers if name.lower().decode("latin-1") not in NOT_BACK]
        self.kind = next((value.decode("latin-1") for name, value in fields if name == b"content-type"), "?")
        await self._send({"type": "http.response.start", "status": status, "headers": fields})

    async def send(self, body: bytes, more: bool = True) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": more})

    async def whole(self, status: int, kind: str, body: bytes) -> None:
        await self.start(status, [(b"content-type", kind.encode("latin-1")), (b"content-length", str(len(body)).encode())])
        await self.send(body, more=False)

    async def error(self, status: int, code: str, message: str) -> None:
        await self.whole(status, "application/json", json.dumps(_error(status, code, message)).encode())

    async def fail(self, status: int, code: str, message: str) -> None:
        """Whatever was sent before."""
        if not self.kind:
            return await self.error(status, code, message)
        error = json.dumps({"type": "error", **_error(status, code, message)}).encode()
        if self.kind.startswith(EVENTS):
            return await self.send(b"event: error\ndata: " + error + b"\n\n", more=False)
        if "ndjson" in self.kind:
            return await self.send(json.dumps({"error": message}).encode() + b"\n", more=False)
        # A body that is cut off must not look whole, and the only way to say so is to break the connection.
        raise ConnectionResetError(message)


def _error(status: int, code: str, message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "server_error" if status >= 500 else "invalid_request_error", "param": None,
                      "code": code, "status": status}}


class Passage:
    def __init__(self, places: Places, scope: Message, path: str, body: bytes, wish: Wish, story: Story | None, reply: Reply) -> None:
        self._places, self._scope, self._wish, self._story, self._reply = places, scope, wish, story, reply
        self._body = body
        query = scope.get("query_string", b"").decode("latin-1")
        raw = (scope.get("raw_path") or path.encode()).decode("latin-1")
        raw = raw.removeprefix(scope.get("root_path", "").rstrip("/"))
        self._target = raw + (f"?{query}" if query else "")

    async def run(self) -> None:
        why = ""
        for move in range(MOST_MOVES + 1):
            try:
                place = await self._places.take(self._wish)
            except TimeoutError as error:
                raise Failed(why or "no replica can take the request; ask again in a minute, and see `serve status`") from error
            broke = True
            try:
                done = await self._pass(place, is_last=move == MOST_MOVES)
                broke = False
                if done:
                    return
                why = f"replica {place.id} takes no requests"
            except (aiohttp.ClientError, OSError, Cut) as error:
                why = f"replica {place.id} broke off: {error or type(error).__name__}"
            except BaseException:
                broke = False  # the client left
                raise
            finally:
                place.ended(broke)
            log.warning("%s %s: %s", self._scope["method"], self._target, why)
            self._wish.without.add(place.id)
            if self._reply.kind and not self._goes_on(place):
                raise Failed(f"{why}; the answer cannot go on at another one, ask again")
        raise Failed(f"{why}; it was the last of {MOST_MOVES + 1} that were asked")

    def _goes_on(self, place: Place) -> bool:
        if self._story is None or not self._reply.kind.startswith(EVENTS):
            return False
        self._story.cut_off()
        self._wish.fingerprint = self._wish.fingerprint or place.metadata["system_fingerprint"]
        return True

    async def _pass(self, place: Place, is_last: bool) -> bool:
        """False: this replica takes no requests, and nothing was told of an answer."""
        body = self._story.body if self._story else self._body
        async with self._places.session.request(self._scope["method"], URL(place.url(self._target), encoded=True), data=body or None,
                                                headers=self._headers(place), allow_redirects=False, skip_auto_headers=AUTOMATIC) as answer:
            if answer.status == 503 and not is_last:
                return False
            is_stream = answer.content_type == EVENTS
            if self._reply.kind and not is_stream:
                raise Failed(f"replica {place.id} does not go on with the answer of one that broke off: {(await answer.text())[:500]}")
            if not self._reply.kind:
                await self._reply.start(answer.status, (*answer.raw_headers, (REPLICA, place.id.encode())))
            story = self._story if is_stream else None
            async for data in answer.content.iter_any():
                place.began()
                if story:
                    data = story.take(data)
                if data:
                    await self._reply.send(data)
                if story and story.broken:
                    raise Cut(story.broken)
            if story and not story.ended:
                raise Cut("the stream ended before its answer")
            await self._reply.send(b"", more=False)
            return True

    def _headers(self, place: Place) -> CIMultiDict[str]:
        headers = CIMultiDict((name.decode("latin-1"), value.decode("latin-1")) for name, value in self._scope["headers"])
        for name in HOP_BY_HOP:
            headers.popall(name, None)
        add_client(self._scope, headers)
        headers.popall(place.header()[0], None)
        headers.add(*place.header())
        return headers


def add_client(scope: Message, headers: CIMultiDict[str]) -> None:
    """Whom the request comes from, as the replica's server believes its relay."""
    before = headers.popall("X-Forwarded-For", [])
    client = scope.get("client") or ("unknown", 0)
    headers.add("X-Forwarded-For", ", ".join([*before, str(client[0])]))
