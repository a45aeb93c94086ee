"""A stream of events that goes on at another replica when its own dies: what was told so far, and what is asked of the next one.

The request is sent with `stream_options.include_resume`. Whole events are passed on, byte for byte but for their `resume`, which is
kept (and passed on too where the client asked for it). A stream that is cut goes on with the pieces so far; one that had told none
begins anew, and what it had told then, the role for example, is left out the second time.
"""

from __future__ import annotations

import json
import re
from typing import Any

# The server writes it; within a text the quotes would stand behind backslashes.
RESUME = re.compile(rb',"resume":"([^"\\]*)"|"resume":"([^"\\]*)",')
DATA, ERROR, DONE = b"data: ", b'data: {"error"', b"data: [DONE]"
MOST_EVENT_BYTES = 64 << 20


class Story:
    """`fields`: the body, as JSON has it; `body`: its bytes."""

    def __init__(self, fields: dict[str, Any], body: bytes) -> None:
        self._fields = fields
        options = fields.get("stream_options") or {}
        self._shows_pieces = options.get("include_resume") is True
        self._pieces: list[str] = []
        self._pending = b""
        self._told = 0  # events before the first piece
        self._skip = 0
        self.ended = False  # its answer did
        self.broken = ""  # why its answer did not, but would at another replica
        if self._shows_pieces:
            self.body = body
        elif "stream_options" in fields:
            self.body = self._with(stream_options={**options, "include_resume": True})
        else:  # all other bytes as they were
            self.body = body.rstrip()[:-1] + b',"stream_options":{"include_resume":true}}'

    def take(self, data: bytes) -> bytes:
        """What of the stream so far can be passed on."""
        self._pending += data
        whole = self._pending.rfind(b"\n\n") + 2
        if whole == 1:
            if len(self._pending) > MOST_EVENT_BYTES:
                raise ValueError(f"an event of the stream has more than {MOST_EVENT_BYTES} bytes")
            return b""
        events, self._pending = self._pending[:whole], self._pending[whole:]
        return b"".join(map(self._event, re.findall(rb"(?s).*?\n\n", events)))

    def cut_off(self) -> None:
        """The next bytes are another replica's, which was sent `body`."""
        self._pending, self.broken = b"", ""
        if not self._pieces:
            self._skip = self._told
            return
        begun = self._fields.get("resume") or []
        pieces = ([begun] if isinstance(begun, str) else list(begun)) + self._pieces
        given = {key: value for key, value in self._fields.items() if key != "continue_token_ids"}
        options = {**(self._fields.get("stream_options") or {}), "include_resume": True}
        self.body = json.dumps({**given, "stream_options": options, "resume": pieces}).encode()

    def _with(self, **more: Any) -> bytes:
        return json.dumps({**self._fields, **more}).encode()

    def _event(self, event: bytes) -> bytes:
        if not event.startswith(DATA):
            return event  # a comment that keeps the connection alive
        if event.startswith(ERROR):
            return self._error(event)
        if event.startswith(DONE):
            self.ended = True
        elif found := RESUME.search(event):
            self._pieces.append((found[1] or found[2]).decode())
            return event if self._shows_pieces else event[: found.start()] + event[found.end() :]
        elif not self._pieces:
            if self._skip > 0:
                self._skip -= 1
                return b""
            self._told += 1
        return event

    def _error(self, event: bytes) -> bytes:
        try:
            status = json.loads(event[len(DATA) :])["error"].get("status")
        except (ValueError, TypeError, AttributeError):
            status = None
        if status == 503:  # it is shutting down
            self.broken = event[len(DATA) :].decode("utf-8", "replace").strip()
            return b""
        self.ended = True
        return event
