"""Answers to what Dynamo's frontend sends: tokens in, tokens out."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator
from typing import Any

from dynamo.llm.exceptions import EngineShutdown  # type: ignore[import-not-found,unused-ignore]

from choral.async_llm import AsyncLLM
from choral.dynamo.chunk import chunk_of, prompt_logprobs, usage
from choral.dynamo.errors import dynamo_error
from choral.dynamo.predecessor import link_of
from choral.dynamo.question import Question, question_of
from choral.errors import ChoralError, UnsupportedError
from choral.outputs import CompletionOutput, Logprobs
from choral.sampling import SamplingParams

log = logging.getLogger(__name__)


class Worker:
    """Of one engine. `name` is that of the model; every other name is an adapter's."""

    def __init__(self, llm: AsyncLLM, name: str) -> None:
        self._llm = llm
        self._name = name
        self._defaults = llm.get_default_sampling_params()
        self._vocabulary = llm.model_info.vocab_size
        self._ends = frozenset(llm.model_info.eos_token_ids)
        self._numbers = itertools.count()
        self._in_flight: set[str] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_leaving = False

    async def generate(self, request: Any, context: Any) -> AsyncIterator[dict[str, Any]]:
        """Dynamo calls it for each request."""
        if self._is_leaving:
            raise EngineShutdown("this worker is shutting down")
        own_id = f"{context.id()}#{next(self._numbers)}"  # one that migrates may come back
        self._in_flight.add(own_id)
        self._idle.clear()
        stopped = asyncio.ensure_future(context.async_killed_or_stopped())
        stopped.add_done_callback(lambda _: self._abort(own_id))
        try:
            question = question_of(request, context.id(), self._defaults)
            async for chunk in self._answer(question, own_id, context):
                yield chunk
        except ChoralError as error:
            log.debug("request %s: %s", context.id(), error.message)
            raise dynamo_error(error) from None
        finally:
            stopped.cancel()
            self._in_flight.discard(own_id)
            if not self._in_flight:
                self._idle.set()

    async def _answer(self, question: Question, own_id: str, context: Any) -> AsyncIterator[dict[str, Any]]:
        adapter = None if question.name in ("", self._name) else question.name
        link = link_of(context.id(), context.trace_id, question.prompt)
        of_prompt = await self._prompt_logprobs(question, own_id, adapter) if question.given else None
        made, ended = 0, 0
        if not (self._is_leaving or context.is_stopped()):
            outputs = self._llm.generate(
                question.whole, question.params, own_id, lora_request=adapter, priority=question.priority, delta=True
            )
            async for output in outputs:
                of_prompt = output.prompt_logprobs or of_prompt
                chunks = []
                for news in output.outputs:
                    self._check_tokens(news, question)
                    made += len(news.token_ids)
                    if self._is_leaving and news.finish_reason == "abort":
                        news.finish_reason = None
                    ended += news.finish_reason is not None
                    if news.stop_reason in self._ends:
                        news.stop_reason = None  # it says which of a request's own words ended the answer
                    chunks.append({**chunk_of(news, self._llm.token_bytes), "worker_trace_link": link})
                if ended == question.params.n and output.finished:
                    chunks = chunks or [{"token_ids": [], "index": 0}]
                    chunks[-1]["completion_usage"] = usage(output, len(question.prompt), len(question.given) + made)
                    if of_prompt is not None:
                        chunks[-1]["engine_data"] = prompt_logprobs(of_prompt)
                for chunk in chunks:
                    yield chunk
        if self._is_leaving and ended < question.params.n:
            raise EngineShutdown("this worker is shutting down; the answer goes on at another one")

    async def _prompt_logprobs(self, question: Question, own_id: str, adapter: str | None) -> Logprobs | None:
        """Of a prompt whose answer began at another worker, which would have told them at the end. The engine tells them with an
        answer's first token, so one is made for them."""
        if question.params.prompt_logprobs is None:
            return None
        params = SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=question.params.prompt_logprobs)
        prompt = {"prompt_token_ids": question.prompt, "cache_salt": question.cache_salt}
        async for output in self._llm.generate(prompt, params, own_id, lora_request=adapter, priority=question.priority):
            told = output.prompt_logprobs
        return told

    def _check_tokens(self, news: CompletionOutput, question: Question) -> None:
        if news.token_ids and max(news.token_ids) >= self._vocabulary:
            raise UnsupportedError(
                f"adapter '{question.name}' answers with tokens of its own, which Dynamo's frontend cannot read; ask choral serve for it"
            )

    # --- the end ---

    async def finish(self, limit_s: float) -> None:
        """Until no request is in flight, but not longer."""
        if self._idle.is_set():
            return
        try:
            await asyncio.wait_for(self._idle.wait(), limit_s)
        except (TimeoutError, asyncio.TimeoutError):
            log.info("%d requests are left and go on at other workers", len(self._in_flight))

    async def leave(self) -> None:
        """What is in flight goes on at another worker, and what comes is sent there."""
        self._is_leaving = True
        for own_id in list(self._in_flight):
            await self._llm.abort(own_id)
        await self._idle.wait()

    def _abort(self, own_id: str) -> None:
        if own_id in self._in_flight:
            asyncio.ensure_future(self._llm.abort(own_id))
