"""Ray Serve's request router, by the policy of choral.ray.policy. Requests come with a Wish as their first argument."""

from __future__ import annotations

from typing import Any

from ray.serve.request_router import PendingRequest, RequestRouter, RunningReplica  # type: ignore[import-not-found,unused-ignore]

from choral.ray.fleet import Fleet
from choral.ray.wish import Wish


class AdapterRouter(RequestRouter):  # type: ignore[misc,unused-ignore]
    """One in each process that has a handle of the engines, which is the ingress's."""

    def initialize_state(self, **_: Any) -> None:
        self.fleet = Fleet()

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        wish = pending_request.args[0] if pending_request is not None and pending_request.args else None
        if pending_request is None or not isinstance(wish, Wish):
            return [candidate_replicas]
        pending_request.routing_context.should_backoff = True  # before the next look, where all are full or none is left
        replicas = {replica.replica_id.unique_id: replica for replica in candidate_replicas}
        others = {id for id, replica in replicas.items()
                  if wish.fingerprint and replica.replica_metadata.get("system_fingerprint") != wish.fingerprint}
        told = {id: replica.routing_stats for id, replica in replicas.items()}
        wish.fleet = self.fleet
        order = self.fleet.order(told, wish.asked.adapters, wish.asked.prefixes, wish.without | others)
        return [[replicas[id]] for id in order]
