"""What the ingress asks the router for, with each request and with each replica that it is sent to."""

from __future__ import annotations

from dataclasses import dataclass, field

from choral.ray.asked import Asked
from choral.ray.fleet import Fleet


@dataclass
class Wish:
    asked: Asked
    fingerprint: str = ""  # system_fingerprint that the replica must have; empty: any
    without: set[str] = field(default_factory=set)  # ids of replicas that failed it
    fleet: Fleet | None = None  # the router's, once it has chosen
