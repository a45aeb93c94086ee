"""Choral on Ray Serve: replicas of one model and its adapters behind one address.

>>> from ray import serve
>>> from choral.ray import build_app
>>> serve.run(build_app("SmolLM2-135M-Instruct.gguf", adapter_root="/srv/adapters", replicas=3))

or `serve run choral.ray:app model=SmolLM2-135M-Instruct.gguf adapter_root=/srv/adapters replicas=3`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from choral.ray.build import Settings, app, build_app

__all__ = ["Settings", "app", "build_app"]


def __getattr__(name: str) -> Any:
    if name in __all__:  # the rest of this package is plain Python, and needs no Ray
        from choral.ray import build

        return getattr(build, name)
    raise AttributeError(f"module 'choral.ray' has no attribute {name!r}")
