"""The arguments of an engine: those of vLLM that mean something here, and this engine's own."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from choral import _choral
from choral.adapters import adapter_spec
from choral.errors import InvalidArgumentError

# By the engine's names, with the values it takes.
ENGINE_ARGUMENTS = {
    "tokenizer", "dtype", "quantization", "activations", "packed_cache", "kv_cache_dtype", "device", "strict", "require_device", "custom_ops", "fuse",
    "threads", "numa", "tensor_parallel_size", "max_model_len", "max_num_seqs", "max_num_batched_tokens", "kv_cache_bytes", "max_waiting", "max_waiting_tokens",
    "request_timeout_s", "queue_timeout_s", "enable_prefix_caching", "enable_chunked_prefill", "speculative", "most_guessed", "traffic_memory_bytes", "draft_model", "draft_quantization",
    "scheduling_policy", "seed", "chat_template", "adapter_root", "lora_dtype", "max_lora_rank", "lora_extra_vocab_size", "lora_bias", "max_loras",
    "max_cpu_loras", "fully_sharded_loras", "adapter_memory_bytes", "generations_alive",
}  # fmt: skip

# vLLM's that ask for what is here anyway, or change no answer: value → whether it may pass without a word.
_HARMLESS: dict[str, Callable[[Any], bool]] = {
    "enable_lora": lambda value: True,  # adapters are always served
    "pipeline_parallel_size": lambda value: value == 1,
    "data_parallel_size": lambda value: value == 1,
    "trust_remote_code": lambda value: not value,
    "tokenizer_mode": lambda value: value == "auto",
    "skip_tokenizer_init": lambda value: not value,
    "load_format": lambda value: value == "auto",
    "enforce_eager": lambda value: True,
    "disable_log_stats": lambda value: True,
    "gpu_memory_utilization": lambda value: True,
    "swap_space": lambda value: True,
}

# These would change what is answered, so they are refused where they differ from what is done.
_REFUSED = {
    "pipeline_parallel_size": "one process computes the whole model",
    "data_parallel_size": "one engine answers",
    "trust_remote_code": "no code of a model's folder is run",
    "skip_tokenizer_init": "the tokenizer is always there",
}

_told: set[str] = set()


def engine_options(model: str | os.PathLike[str], adapters: Mapping[str, Any] | None, arguments: dict[str, Any]) -> _choral.EngineOptions:
    options = _choral.EngineOptions()
    options.model = os.fspath(model)
    if revision := arguments.pop("revision", None):
        options.model += f"@{revision}"
    options.adapters = [adapter_spec(name, source) for name, source in (adapters or {}).items()]
    options.draft_adapters = [adapter_spec(name, source) for name, source in (arguments.pop("draft_adapters", None) or {}).items()]
    if config := arguments.pop("speculative_config", None):
        arguments = {**arguments, **_speculation(config)}
    for name, value in arguments.items():
        if value is None:
            continue
        if name in ENGINE_ARGUMENTS:
            _set(options, name, os.fspath(value) if isinstance(value, os.PathLike) else value)
        else:
            _refuse_or_warn(name, value)
    return options


def _speculation(config: Mapping[str, Any]) -> dict[str, Any]:
    """vLLM's configuration in the engine's words."""
    if not isinstance(config, Mapping):
        raise InvalidArgumentError(f"speculative_config must be a dict such as {{'method': 'ngram'}}, not {type(config).__name__}")
    given = {name: value for name, value in config.items() if value is not None}
    if given.pop("method", "ngram") not in ("ngram", "draft_model"):
        raise InvalidArgumentError(
            f"speculative_config's method {config['method']!r:.80} is not served: give {{'method': 'ngram'}} or {{'model': 'MODEL'}}"
        )
    out = {"most_guessed": given.pop("num_speculative_tokens", None)}
    if (model := given.pop("model", "ngram")) not in ("ngram", "[ngram]"):
        out["draft_model"] = model
    for name in ("prompt_lookup_min", "prompt_lookup_max", "disable_by_batch_size"):
        if name in given:
            del given[name]
            warnings.warn(f"speculative_config's {name} changes nothing here: guesses are weighed before each step", stacklevel=5)
    if given:
        raise InvalidArgumentError(f"speculative_config's {', '.join(sorted(given))} is not known")
    return out


def _set(options: _choral.EngineOptions, name: str, value: Any) -> None:
    try:
        setattr(options, name, value)
    except TypeError:
        wanted = type(getattr(options, name)).__name__
        raise InvalidArgumentError(f"{name} must be of type {wanted}, not {type(value).__name__} ({value!r})") from None


def _refuse_or_warn(name: str, value: Any) -> None:
    if name in _HARMLESS and _HARMLESS[name](value):
        return
    if name in _REFUSED:
        raise InvalidArgumentError(f"{name}={value!r} is not served: {_REFUSED[name]}")
    if name not in _told:
        _told.add(name)
        warnings.warn(f"LLM: the argument {name} is not known here and does nothing", stacklevel=4)
