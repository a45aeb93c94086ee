"""Which adapters answer a request: a name, a LoRARequest, or a mix of names with factors."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Union

from choral import _choral
from choral.errors import InvalidArgumentError

_ids = itertools.count(1)


@dataclass(frozen=True)
class LoRARequest:
    """vLLM's: an adapter's name and where it lies. A name that is loaded already needs no path."""

    lora_name: str
    lora_int_id: int = field(default_factory=lambda: next(_ids), compare=False)
    lora_path: str = ""

    @property
    def name(self) -> str:
        return self.lora_name

    @property
    def path(self) -> str:
        return self.lora_path


# None and "base": the base alone. A mapping is a mix: y = W·x + Σ factor·ΔW·x.
Adapter = Union[None, str, LoRARequest, Mapping[str, float]]

BASE = "base"


def uses_of(adapter: Adapter) -> list[_choral.AdapterUse]:
    """As the engine takes them."""
    if adapter is None or adapter == BASE:
        return []
    if isinstance(adapter, str):
        return [_choral.AdapterUse(adapter)]
    if isinstance(adapter, LoRARequest):
        return [_choral.AdapterUse(adapter.lora_name)]
    if isinstance(adapter, Mapping):
        return [_choral.AdapterUse(name, float(factor)) for name, factor in adapter.items()]
    raise InvalidArgumentError(
        f"an adapter is a name, a LoRARequest or a mix such as {{'pirate': 0.7, 'sql': 0.3}}, not {type(adapter).__name__}"
    )


def label_of(adapter: Adapter) -> str:
    """For people: "base", "pirate", "0.5·pirate + 0.5·sql"."""
    uses = uses_of(adapter)
    if not uses:
        return BASE
    return " + ".join(use.name if use.scale == 1 else f"{use.scale:g}·{use.name}" for use in uses)
