"""The life of a worker's process: it loads, tells what it has, answers, and leaves without an answer lost."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from dataclasses import dataclass, field
from typing import Any

from dynamo._core import get_reasoning_parser_names, get_tool_parser_names  # type: ignore[import-not-found,unused-ignore]
from dynamo.health_check import HEALTH_CHECK_KEY, load_health_check_from_env  # type: ignore[import-not-found,unused-ignore]
from dynamo.llm import ModelRuntimeConfig  # type: ignore[import-not-found,unused-ignore]
from dynamo.runtime import DistributedRuntime  # type: ignore[import-not-found,unused-ignore]

from choral import _choral
from choral.async_llm import AsyncLLM
from choral.dynamo.catalogue import Catalogue
from choral.dynamo.worker import Worker
from choral.errors import InvalidArgumentError, UnavailableError

log = logging.getLogger(__name__)

_DEFAULTS = _choral.EngineOptions()
_GRACE_S = float(os.environ.get("DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS") or 5)  # Dynamo's own workers read it too


@dataclass
class ServingOptions:
    model: str
    served_model_name: str
    model_files: str
    endpoint: str
    discovery_backend: str
    request_plane: str
    event_plane: str | None
    drain_timeout_s: float
    chat_template: str | None = None
    tool_call_parser: str | None = None
    reasoning_parser: str | None = None
    adapters: list[tuple[str, str]] = field(default_factory=list)
    engine: dict[str, Any] = field(default_factory=dict)  # LLM's further arguments


async def serve(options: ServingOptions) -> None:
    """Until SIGTERM or SIGINT. A second one does not wait for answers."""
    async with await AsyncLLM.load(options.model, adapters=dict(options.adapters), **options.engine) as llm:
        files = _files_of(options, llm)
        name = options.served_model_name or llm.model_info.name
        adapters = frozenset(adapter for adapter, _ in options.adapters)
        if name in adapters:
            raise InvalidArgumentError(f"an adapter and the model are both called {name}; choose another --served-model-name")
        config = _config(options, llm)
        loop = asyncio.get_running_loop()
        leave, hurry = asyncio.Event(), asyncio.Event()
        for sign in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(sign, lambda: (hurry if leave.is_set() else leave).set())
        runtime = _connect(options, loop)
        endpoint = runtime.endpoint(options.endpoint)
        worker = Worker(llm, name)
        root = options.engine.get("adapter_root", "")
        catalogue = Catalogue(llm, endpoint, name, files, adapters, root, options.chat_template, config)
        serving = endpoint.serve_endpoint(worker.generate, graceful_shutdown=True, health_check_payload=_probe(llm))
        try:
            await catalogue.tell()
            log.info("%s and %d adapters are served at %s by worker %d", name, len(catalogue.told), options.endpoint, endpoint.connection_id())
            await _first_of(serving, catalogue.follow_adapters(), leave.wait())
            if not leave.is_set():
                raise UnavailableError("Dynamo's runtime has ended the endpoint; what it logged says why")
            log.info("this worker leaves")
            await endpoint.unregister_endpoint_instance()
            await _first_of(_answers_end(worker, options.drain_timeout_s), hurry.wait())
            await worker.leave()
        finally:
            runtime.shutdown()
        await serving


def _connect(options: ServingOptions, loop: asyncio.AbstractEventLoop) -> Any:
    try:
        return DistributedRuntime(loop, options.discovery_backend, options.request_plane, event_plane=options.event_plane)
    except Exception as error:  # it has no class of its own
        raise UnavailableError(
            f"Dynamo cannot be reached: {error}. --discovery-backend is {options.discovery_backend}; file needs no server, and the "
            "frontend must have the same"
        ) from None


async def _answers_end(worker: Worker, limit_s: float) -> None:
    """Frontends learn a moment later that nothing more is to come, and send until then."""
    await asyncio.sleep(_GRACE_S)
    await worker.finish(limit_s)


async def _first_of(*awaited: Any) -> None:
    """Until one of them has ended. Where that is an error it is raised; the others are given up, but what is of Dynamo itself."""
    tasks = [asyncio.ensure_future(one) for one in awaited]
    done, others = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in others:
        if isinstance(task, asyncio.Task):
            task.cancel()
    for task in done:
        task.result()


def _files_of(options: ServingOptions, llm: AsyncLLM) -> str:
    folder = options.model_files or llm.model_info.path
    if not os.path.isfile(os.path.join(folder, "config.json")):
        raise InvalidArgumentError(
            f"{folder} has no config.json: Dynamo's frontend reads tokenizer and chat template from a folder in Hugging Face's form. "
            "Name one with --model-files; it needs no weights"
        )
    if options.chat_template and not os.path.isfile(options.chat_template):
        raise InvalidArgumentError(f"--custom-jinja-template {options.chat_template}: there is no such file")
    return folder


def _config(options: ServingOptions, llm: AsyncLLM) -> Any:
    for flag, name, known in (
        ("--dyn-tool-call-parser", options.tool_call_parser, get_tool_parser_names()),
        ("--dyn-reasoning-parser", options.reasoning_parser, get_reasoning_parser_names()),
    ):
        if name is not None and name not in known:
            raise InvalidArgumentError(f"{flag} {name}: Dynamo has {', '.join(sorted(known))}")
    config = ModelRuntimeConfig()
    config.context_length = llm.model_info.max_model_len
    config.total_kv_blocks = llm.stats()["kv_blocks_total"]
    config.max_num_seqs = options.engine.get("max_num_seqs", _DEFAULTS.max_num_seqs)
    config.max_num_batched_tokens = options.engine.get("max_num_batched_tokens", _DEFAULTS.max_num_batched_tokens)
    config.tool_call_parser = options.tool_call_parser
    config.reasoning_parser = options.reasoning_parser
    config.kv_event_publishing_enabled = False
    return config


def _probe(llm: AsyncLLM) -> dict[str, Any]:
    """What Dynamo asks an idle worker, where its health checks are on."""
    info = llm.model_info
    token = info.bos_token_id if info.bos_token_id is not None else 0
    own = {"token_ids": [token], "stop_conditions": {"max_tokens": 1, "ignore_eos": True}, "sampling_options": {"temperature": 0.0}}
    return {**(load_health_check_from_env() or own), HEALTH_CHECK_KEY: True}
