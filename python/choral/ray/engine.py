"""A replica: one engine, which is the server `choral serve`, with its health, its load and its adapters told to Ray Serve."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import secrets
from collections.abc import Sequence
from typing import Any

import aiohttp
import ray  # type: ignore[import-not-found,unused-ignore]
from ray import serve

from choral.ray.changes import Change
from choral.ray.child import Child
from choral.ray.prefixes import Prefixes
from choral.ray.record import Record
from choral.ray.relay import Relay

log = logging.getLogger("ray.serve")
OWN_TIMEOUT = aiohttp.ClientTimeout(total=25)
LOAD_TIMEOUT = aiohttp.ClientTimeout(total=600)
NUMBER = re.compile(r"^(choral:waiting_prompt_tokens|vllm:num_requests_running|vllm:num_requests_waiting)(?:\{[^}]*\})? (\S+)", re.MULTILINE)
CACHE = re.compile(r"^vllm:cache_config_info\{([^}]*)\}", re.MULTILINE)


def _log_line(line: str) -> None:
    if " unix GET " not in line:  # of the access log: what the replica itself asks each second; clients' requests have their addresses
        log.info("%s", line)


class Engine:
    async def __init__(self, model: str, arguments: Sequence[str], drain_s: int) -> None:  # type: ignore[misc]
        self._drain_s = drain_s
        # In a thread, which lives as long as the process: the child ends with the thread that started it.
        self._child = await asyncio.to_thread(Child, model, arguments, drain_s, _log_line)
        self._prefixes = Prefixes()
        self._secret = secrets.token_hex(16)
        self._relay = Relay(self._child.socket_path, self._secret, self._prefixes.add)
        self._host = ray.util.get_node_ip_address()
        self._port = await self._relay.start(self._host)
        self._session = aiohttp.ClientSession(connector=aiohttp.UnixConnector(self._child.socket_path))
        self._own = {"Authorization": f"Bearer {self._child.key}"} if self._child.key else {}
        self._server_info = await self._get_json("/server_info")
        context = serve.get_replica_context()
        self._id = context.replica_id.unique_id
        self._record = Record(context.app_name)
        self._revision = ""
        self._made: dict[str, dict[str, Any]] = {}  # of this replica by clients: changes.Change.apply
        self._changing = asyncio.Lock()
        await self._catch_up()

    def record_replica_metadata(self) -> dict[str, Any]:
        return {"id": self._id, "host": self._host, "port": self._port, "secret": self._secret, "base_names": self._server_info["served_model_names"],
                "system_fingerprint": self._server_info["system_fingerprint"], "pid": self._child.pid,
                "node_id": ray.get_runtime_context().get_node_id()}

    async def record_routing_stats(self) -> dict[str, Any]:
        await self._catch_up()
        numbers = await self._numbers()
        adapters = (await self._get_json("/v1/lora_adapters"))["data"]
        held = [entry["name"] for entry in adapters if entry["state"] in ("resident", "loading")]
        return {"adapters": held, "prefixes": self._prefixes.told(), **numbers}

    async def record_autoscaling_stats(self) -> dict[str, float]:
        return await self._numbers()

    async def check_health(self) -> None:
        self._child.check()
        async with self._session.get("http://replica/health", timeout=OWN_TIMEOUT) as answer:
            if answer.status != 200:
                raise RuntimeError(f"choral serve is not well: {await answer.text()}")

    async def change(self, change: Change) -> tuple[int, str, bytes]:
        """A client's request that all replicas get: status, content type and body of this one's answer."""
        async with self._changing:
            status, kind, body = await self._ask(change)
            if status == 200:
                change.apply(self._made)
            return status, kind, body

    async def __del__(self) -> None:
        self._relay.stop()
        await asyncio.to_thread(self._child.stop, self._drain_s + 10)
        await self._session.close()

    async def _catch_up(self) -> None:
        """Does what clients asked of the fleet while this replica was not there."""
        if (revision := await asyncio.to_thread(self._record.revision)) == self._revision:
            return
        async with self._changing:
            wanted = await asyncio.to_thread(self._record.loads)
            for change in Change.between(self._made, wanted):
                status, _, body = await self._ask(change)
                if status == 200:
                    change.apply(self._made)
                else:
                    log.error("adapter '%s', which clients loaded into the fleet, is not as they wanted it here: %s", change.name,
                              body.decode("utf-8", "replace"))
            self._revision = revision

    async def _ask(self, change: Change) -> tuple[int, str, bytes]:
        who = self._own if change.headers is None else change.headers
        async with self._session.post(f"http://replica{change.path}", data=json.dumps(change.fields).encode(), timeout=LOAD_TIMEOUT,
                                      headers={"Content-Type": "application/json", **who}) as answer:
            return answer.status, answer.headers.get("Content-Type", ""), await answer.read()

    async def _numbers(self) -> dict[str, float]:
        async with self._session.get("http://replica/metrics", headers=self._own, timeout=OWN_TIMEOUT) as answer:
            text = await answer.text()
        numbers = {name: float(value) for name, value in NUMBER.findall(text)}
        if found := CACHE.search(text):
            labels = dict(re.findall(r'(\w+)="([^"]*)"', found[1]))
            has_cache = labels.get("enable_prefix_caching") == "True"
            self._prefixes.set_cache(int(labels["block_size"]) * int(labels["num_gpu_blocks"]) if has_cache else 0)
        answers = numbers["vllm:num_requests_running"] + numbers["vllm:num_requests_waiting"]
        return {"waiting_tokens": numbers["choral:waiting_prompt_tokens"], "answers": answers}

    async def _get_json(self, path: str) -> Any:
        async with self._session.get(f"http://replica{path}", headers=self._own, timeout=OWN_TIMEOUT) as answer:
            answer.raise_for_status()
            return await answer.json()
