"""Requests that change adapters, which all replicas of a fleet get, and which those get that start later."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

LOAD, UNLOAD = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
PIN, UNPIN = "/v1/pin_lora_adapter", "/v1/unpin_lora_adapter"
PATHS = frozenset({LOAD, UNLOAD, PIN, UNPIN})


@dataclass(frozen=True)
class Change:
    """`headers`: of the client who asks, who must be an admin. None: the replica asks for itself."""

    path: str
    fields: dict[str, Any]
    headers: dict[str, str] | None = None

    @property
    def name(self) -> str:
        return str(self.fields.get("lora_name"))

    def apply(self, made: dict[str, dict[str, Any]]) -> None:
        """To what clients made of the fleet: by name the fields of a request that makes it so again. Those without a path pin an
        adapter that is there by the flags or the root."""
        if self.path == UNLOAD:
            made.pop(self.name, None)
        elif self.path == LOAD:
            made[self.name] = {**self.fields, "load_inplace": True}
        elif "lora_path" in made.get(self.name, {}):
            made[self.name] = {**made[self.name], "pinned": self.path == PIN}
        elif self.path == PIN:
            made[self.name] = {"lora_name": self.name}
        else:
            made.pop(self.name, None)

    @staticmethod
    def between(now: Mapping[str, dict[str, Any]], wanted: Mapping[str, dict[str, Any]]) -> Iterator[Change]:
        """What a replica that is as `now` has to do."""
        for name in set(now) - set(wanted):
            yield Change(UNLOAD if "lora_path" in now[name] else UNPIN, {"lora_name": name})
        for name, fields in wanted.items():
            if now.get(name) != fields:
                yield Change(LOAD if "lora_path" in fields else PIN, fields)
