"""Requests that change adapters: all replicas get them, and the client one answer."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

from multidict import CIMultiDict
from ray import serve  # type: ignore[import-not-found,unused-ignore]

from choral.ray.changes import Change
from choral.ray.passage import Reply, add_client
from choral.ray.record import Record

# What the replicas' servers decide by, and write to their logs.
PASSED = ("authorization", "x-api-key", "origin", "x-forwarded-for", "x-request-id", "traceparent")
TIMEOUT_S = 600


async def change_all(engines: serve.handle.DeploymentHandle, path: str, fields: dict[str, Any], scope: MutableMapping[str, Any],
                     reply: Reply) -> None:
    if fields.get("expected_generation") is not None:
        return await reply.error(400, "invalid_argument", "'expected_generation': each replica of a fleet counts the generations of a name "
                                 "for itself; leave it out")
    headers = CIMultiDict((name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"])
    add_client(scope, headers)
    change = Change(path, fields, {name: headers[name] for name in PASSED if name in headers})
    told = await engines.broadcast("change", change).results_async(timeout_s=TIMEOUT_S, return_exceptions=True)
    refusals = [one for one in told if isinstance(one, Exception) or one[0] != 200]
    if not refusals:
        await asyncio.to_thread(_remember, Change(path, fields))
        return await reply.whole(*told[0])
    if len(refusals) == len(told) and not isinstance(refusals[0], Exception):
        return await reply.whole(*refusals[0])
    why = refusals[0] if isinstance(refusals[0], Exception) else refusals[0][2].decode("utf-8", "replace")
    await reply.error(502, "partly_done", f"{len(told) - len(refusals)} of {len(told)} replicas did it, so the fleet is not of one mind: send "
                      f"the same again (a load with 'load_inplace': true). The first that did not: {str(why)[:500]}")


def _remember(change: Change) -> None:
    record = Record(serve.get_replica_context().app_name)
    made = record.loads()
    change.apply(made)
    if change.name in made:
        record.put(change.name, made[change.name])
    else:
        record.remove(change.name)
