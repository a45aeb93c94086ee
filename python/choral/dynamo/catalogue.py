"""What Dynamo's frontends know of a worker: the base and its adapters, each by its name."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from dynamo.llm import (  # type: ignore[import-not-found,unused-ignore]
    ModelInput,
    ModelRuntimeConfig,
    ModelType,
    WorkerType,
    lora_name_to_id,
    register_model,
    unregister_model,
)

from choral.async_llm import AsyncLLM
from choral.errors import NotFoundError
from choral.lora import BASE

log = logging.getLogger(__name__)

_LOOK_EVERY_S = 2.0


@dataclass
class Catalogue:
    llm: AsyncLLM
    endpoint: Any
    name: str  # the base's
    files: str  # a folder with the tokenizer and the configuration
    adapters: frozenset[str]  # which the engine was loaded with
    adapter_root: str  # empty: there is none
    chat_template: str | None = None  # a file
    config: Any = field(default_factory=ModelRuntimeConfig)
    told: set[str] = field(default_factory=set)

    async def tell(self) -> None:
        await self._register(model_name=self.name)
        await self._tell_adapters()

    async def follow_adapters(self) -> None:
        """Folders that come to the adapter root, and those that go."""
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            try:
                await self._tell_adapters()
            except Exception:  # of the disk, or of the place where workers are told, which may be back the next time
                log.exception("adapters are not told to the frontends; the next try is in %g s", _LOOK_EVERY_S)

    async def _tell_adapters(self) -> None:
        there = self.adapters | await asyncio.to_thread(lambda: set(_names_in(self.adapter_root)))
        for adapter in sorted(there - self.told - {self.name, BASE}):
            marks = {"lora_adapter": True, "lora_id": lora_name_to_id(adapter)}  # as Dynamo's own workers have it
            await self._register(lora_name=adapter, base_model_path=self.files, user_data=marks)
            self.told.add(adapter)
        for adapter in sorted(self.told - there):
            await unregister_model(self.endpoint, lora_name=adapter)
            self.told.remove(adapter)
            try:
                await self.llm.remove_lora(adapter)
            except NotFoundError:
                pass  # nobody asked for it

    async def _register(self, **arguments: Any) -> None:
        await register_model(
            ModelInput.Tokens,
            ModelType.Chat | ModelType.Completions,
            self.endpoint,
            self.files,
            worker_type=WorkerType.Aggregated,
            kv_cache_block_size=self.llm.model_info.kv_block_tokens,
            runtime_config=self.config,
            custom_template_path=self.chat_template,
            ignore_weights=True,
            **arguments,
        )


def _names_in(folder: str, prefix: str = "") -> Iterator[str]:
    """Of the adapters in a root, as the engine finds them when they are named: folders, and folders in those that are none."""
    if not folder:
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(".") or not entry.is_dir():
                continue
            if _holds_adapter(entry.path):
                yield prefix + entry.name
            elif not prefix:
                yield from _names_in(entry.path, entry.name + "/")


def _holds_adapter(folder: str) -> bool:
    try:
        return any(name == "adapter_config.json" or name.endswith(".gguf") for name in os.listdir(folder))
    except OSError:
        return False
