"""The engine for asyncio: answers as they come, any number at a time.

The engine's thread writes to a file descriptor when there is news; the event loop watches it. So no thread of Python's stands in
between, nothing is polled, and however many streams have news, one wake-up tells it all.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from types import TracebackType
from typing import Any

from choral import _choral
from choral.adapters import Source, adapter_spec, load_missing
from choral.errors import InvalidArgumentError, UnavailableError
from choral.llm import LLM
from choral.lora import Adapter, LoRARequest
from choral.outputs import Asked, CompletionOutput, RequestOutput, request_output, stream_output
from choral.requests import Messages, Prompt, chat_request, prompt_request, text_of
from choral.sampling import SamplingParams
from choral.tokenizer import Tokenizer

News = tuple[list[_choral.Event], "_choral.Output | None"]


class AsyncLLM:
    """`AsyncLLM(model, …)` takes LLM's arguments; `await AsyncLLM.load(model, …)` does not hold the loop up meanwhile. It belongs
    to the loop in which it is used first."""

    def __init__(self, model: str | os.PathLike[str], **arguments: Any) -> None:
        self._take_over(LLM(model, **arguments))

    @classmethod
    async def load(cls, model: str | os.PathLike[str], **arguments: Any) -> AsyncLLM:
        made = cls.__new__(cls)
        made._take_over(await asyncio.to_thread(LLM, model, **arguments))
        return made

    def _take_over(self, llm: LLM) -> None:
        self._llm = llm
        self._streams = _choral.Streams(llm._engine)
        self._queues: dict[int, asyncio.Queue[News | None]] = {}
        self._by_id: dict[str, int] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._next_id = 0

    # --- answers ---

    def generate(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        request_id: str | None = None,
        *,
        lora_request: Adapter = None,
        priority: int = 0,
        delta: bool = False,
    ) -> AsyncGenerator[RequestOutput, None]:
        """What there is so far, each time there is more; with `delta`, only what is new. The last one is `finished`. Leaving the
        loop early cancels the request."""
        params = sampling_params or self.get_default_sampling_params()
        request = prompt_request(prompt, params, lora_request)
        asked = Asked(text_of(prompt), lora_request, params, self._llm._text_of)
        return self._stream(request, request_id, asked, priority, delta)

    def chat(
        self,
        messages: Messages,
        sampling_params: SamplingParams | None = None,
        request_id: str | None = None,
        *,
        lora_request: Adapter = None,
        priority: int = 0,
        delta: bool = False,
        **arguments: Any,
    ) -> AsyncGenerator[RequestOutput, None]:
        """As generate(), of a conversation. Further arguments are LLM.chat()'s: tools, response_format, …"""
        params = sampling_params or self.get_default_sampling_params()
        request = chat_request(messages, params, lora_request, **arguments)
        asked = Asked(None, lora_request, params, self._llm._text_of)
        return self._stream(request, request_id, asked, priority, delta)

    async def _stream(
        self, request: _choral.Request, request_id: str | None, asked: Asked, priority: int, delta: bool
    ) -> AsyncGenerator[RequestOutput, None]:
        self._watch()
        if request_id is None:
            self._next_id += 1
            request_id = f"request-{self._next_id}"
        if request_id in self._by_id:
            raise InvalidArgumentError(f"request_id '{request_id}' is in use")
        request.id = request_id
        request.priority = priority
        if isinstance(asked.adapter, LoRARequest):
            await asyncio.to_thread(load_missing, self._llm._engine, [asked.adapter])
        number = self._streams.submit(request)
        queue = self._queues[number] = asyncio.Queue()
        self._by_id[request_id] = number
        so_far: dict[int, CompletionOutput] = {}
        try:
            while (news := await queue.get()) is not None:
                events, end = news
                if end is not None:
                    end.check()
                if delta or end is None:
                    for output in stream_output(request_id, asked, events, so_far, delta, end):
                        yield output
                if end is not None:
                    if not delta:
                        yield request_output(end, asked)
                    return
            raise UnavailableError("the engine was closed before this answer was complete")
        finally:
            if self._queues.pop(number, None) is not None:
                self._streams.cancel(number)  # nothing happens where it has ended
            self._by_id.pop(request_id, None)

    async def abort(self, request_id: str) -> None:
        """Ends a request: its iterator gives what there is, with finish_reason "abort". Unknown ids are passed over: it has ended."""
        number = self._by_id.get(request_id)
        if number is not None:
            self._streams.cancel(number)

    # --- adapters ---

    async def add_lora(self, lora_request: LoRARequest | str, source: Source | None = None, *, replace: bool = False) -> None:
        await asyncio.to_thread(self._llm.load_adapter, lora_request, source, replace=replace)

    async def remove_lora(self, name: str) -> None:
        await asyncio.to_thread(self._llm.unload_adapter, name)

    async def list_loras(self) -> list[_choral.AdapterInfo]:
        return self._llm.adapters()

    async def pin_lora(self, name: str, pinned: bool = True) -> None:
        await asyncio.to_thread(self._llm.pin_adapter, name, pinned)

    # --- the engine ---

    def get_default_sampling_params(self) -> SamplingParams:
        return self._llm.get_default_sampling_params()

    def get_tokenizer(self, lora_request: Adapter = None) -> Tokenizer:
        return self._llm.get_tokenizer(lora_request)

    def token_bytes(self, token_id: int) -> bytes:
        return self._llm.token_bytes(token_id)

    def stats(self) -> dict[str, int]:
        return self._llm.stats()

    @property
    def model_info(self) -> _choral.ModelInfo:
        return self._llm.model_info

    def shutdown(self) -> None:
        """Ends the engine. Iterators that wait get an error."""
        self._unwatch()
        self._llm.close()
        for queue in self._queues.values():
            queue.put_nowait(None)

    async def __aenter__(self) -> AsyncLLM:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    # --- inside ---

    def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return
        if self._loop is not None and not self._loop.is_closed() and self._queues:
            raise InvalidArgumentError("this AsyncLLM has requests in another event loop; use it in one loop at a time")
        self._unwatch()
        self._loop = loop
        loop.add_reader(self._streams.fd, self._take)

    def _unwatch(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._streams.fd)
        self._loop = None

    def _take(self) -> None:
        for number, events, output in self._streams.take():
            queue = self._queues.get(number)
            if queue is not None:
                queue.put_nowait((events, output))
