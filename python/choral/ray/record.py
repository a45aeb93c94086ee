"""The adapters that clients loaded into a fleet, so that a replica that starts later has them too.

Each name's request stands in the key-value store of Ray's head (GCS), which Ray Serve keeps its own state in: it outlives replicas
and their nodes, and outlives the head where that has a store of its own (Redis). Reads and writes are calls over the network.
"""

from __future__ import annotations

import json
import uuid
from typing import Any

from ray.experimental import internal_kv  # type: ignore[import-not-found,unused-ignore]

NAMESPACE = "choral"


class Record:
    def __init__(self, application: str) -> None:
        self._prefix = f"adapters:{application}:"
        self._revision_key = f"adapters-revision:{application}"

    def revision(self) -> str:
        """Another text after each change."""
        return (internal_kv._internal_kv_get(self._revision_key, namespace=NAMESPACE) or b"").decode()

    def loads(self) -> dict[str, dict[str, Any]]:
        """The fields of each name's request."""
        loads = {}
        for key in internal_kv._internal_kv_list(self._prefix, namespace=NAMESPACE):
            if (value := internal_kv._internal_kv_get(key, namespace=NAMESPACE)) is not None:  # else it was unloaded just now
                loads[key.decode()[len(self._prefix) :]] = json.loads(value)
        return loads

    def put(self, name: str, fields: dict[str, Any]) -> None:
        internal_kv._internal_kv_put(self._prefix + name, json.dumps(fields), namespace=NAMESPACE)
        self._change()

    def remove(self, name: str) -> None:
        internal_kv._internal_kv_del(self._prefix + name, namespace=NAMESPACE)
        self._change()

    def _change(self) -> None:
        internal_kv._internal_kv_put(self._revision_key, uuid.uuid4().hex, namespace=NAMESPACE)
