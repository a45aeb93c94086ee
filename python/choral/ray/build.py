"""The Ray Serve application: an ingress, and replicas that own an engine each."""

import shlex
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator
from ray import serve  # type: ignore[import-not-found,unused-ignore]
from ray.serve.config import AutoscalingConfig, AutoscalingPolicy, RequestRouterConfig  # type: ignore[import-not-found,unused-ignore]

from choral.ray.autoscaling import WaitingTokens
from choral.ray.child import check_arguments, value_of
from choral.ray.engine import Engine
from choral.ray.ingress import Ingress
from choral.ray.router import AdapterRouter

STATS_PERIOD_S = 1.0
DOOR_DRAIN_S = 600  # an ingress holds its streams, and nobody can take them over: it stays, beside its successor, until they have ended
USUAL_PLACES = 64  # of `choral serve`, for answers at a time
HEALTH_PERIOD_S, HEALTH_TIMEOUT_S = 2.0, 30.0


class Settings(BaseModel):
    """What `build_app`, `serve run choral.ray:app NAME=VALUE …` and the `args` of a config file take."""

    model_config = ConfigDict(extra="forbid")

    model: str
    adapter_root: str | None = None
    adapters: dict[str, str] = {}  # paths by name
    replicas: int = Field(1, ge=1)
    threads: int = Field(1, ge=1)  # of each engine, and CPUs that Ray sets aside for it
    arguments: list[str] = []  # further flags of `choral serve`
    max_ongoing_requests: int = Field(1024, ge=1)  # at each replica; more wait at the ingress
    drain_s: int = Field(60, ge=0)  # that answers have when their replica is to end, before they go on at another one
    autoscaling: dict[str, Any] | None = None  # Ray's AutoscalingConfig, and waiting_tokens
    engine_options: dict[str, Any] = {}  # of the replicas' deployment, as Ray Serve has them
    ingress_options: dict[str, Any] = {}

    @field_validator("arguments", mode="before")
    @classmethod
    def split(cls, value: Any) -> Any:
        """On the command line they are one text."""
        return shlex.split(value) if isinstance(value, str) else value

    @field_validator("arguments")
    @classmethod
    def check(cls, value: list[str]) -> list[str]:
        check_arguments(value)
        return value


def build_app(model: str, **settings: Any) -> serve.Application:
    """>>> serve.run(build_app("SmolLM2-135M-Instruct.gguf", adapter_root="/srv/adapters", replicas=3))"""
    return app(Settings(model=model, **settings))


def app(settings: Settings) -> serve.Application:
    flags = ["--threads", str(settings.threads), *(["--adapter-root", settings.adapter_root] if settings.adapter_root else []),
             *(part for name, path in settings.adapters.items() for part in ("--lora", f"{name}={path}")), *settings.arguments]
    options: dict[str, Any] = {
        "max_ongoing_requests": settings.max_ongoing_requests,
        "graceful_shutdown_timeout_s": settings.drain_s,
        "health_check_period_s": HEALTH_PERIOD_S,
        "health_check_timeout_s": HEALTH_TIMEOUT_S,
        "ray_actor_options": {"num_cpus": settings.threads},
        "request_router_config": RequestRouterConfig(request_router_class=AdapterRouter, request_routing_stats_period_s=STATS_PERIOD_S),
        **(_autoscaled(settings) if settings.autoscaling is not None else {"num_replicas": settings.replicas}),
    }
    engines = serve.deployment(Engine).options(**_merged(options, settings.engine_options)).bind(settings.model, flags, settings.drain_s)
    door: dict[str, Any] = {"max_ongoing_requests": 4096, "graceful_shutdown_timeout_s": DOOR_DRAIN_S, "ray_actor_options": {"num_cpus": 0}}
    ingress = serve.deployment(serve.ingress()(Ingress), name="Ingress")
    return ingress.options(**_merged(door, settings.ingress_options)).bind(engines)


def _merged(options: dict[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    actor = {**options["ray_actor_options"], **more.get("ray_actor_options", {})}
    return {**options, **more, "ray_actor_options": actor}


def _autoscaled(settings: Settings) -> dict[str, Any]:
    fields = {"min_replicas": settings.replicas, **(settings.autoscaling or {})}
    places = int(value_of("--max-num-seqs", settings.arguments) or USUAL_PLACES)
    policy = AutoscalingPolicy(policy_function=WaitingTokens,
                               policy_kwargs={"waiting_tokens": fields.pop("waiting_tokens", 4096), "places": places})
    return {"autoscaling_config": AutoscalingConfig(policy=policy, **fields)}
