"""What Dynamo's frontend asks for (its PreprocessedRequest), in this engine's words.

Nothing is passed over in silence: each field is either used, or named here as one that rules no token of the answer, or refused.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from choral.dynamo.predecessor import prompt_length
from choral.errors import InvalidArgumentError, UnsupportedError
from choral.sampling import SamplingParams, StructuredOutputsParams


@dataclass(frozen=True)
class Question:
    prompt: list[int]
    given: list[int]  # of the answer, by another worker
    params: SamplingParams
    name: str  # the model's or an adapter's; empty: the base
    cache_salt: str
    priority: int  # lower = earlier

    @property
    def whole(self) -> dict[str, Any]:
        """For AsyncLLM.generate()."""
        return {"prompt_token_ids": self.prompt, "continue_token_ids": self.given, "cache_salt": self.cache_salt}


# Read by the frontend and its router, or said again in a field that is used.
_OF_FRONTEND = {
    "_HEALTH_CHECK", "agent_context", "annotations", "eos_token_ids", "image_cache_scope", "jail_seed", "kv_hint", "mdc_sum",
    "media_io_kwargs", "request_timestamp_ms", "router", "router_config_override",
    "extra_args.nvext", "output_options.formatted_prompt", "output_options.no_stop_trim", "output_options.return_tokens_as_token_ids",
    "sampling_options.detokenize",
    "routing.allowed_worker_ids", "routing.backend_instance_id", "routing.decode_worker_id", "routing.dp_rank",
    "routing.excluded_worker_ids", "routing.expected_output_tokens", "routing.prefill_dp_rank", "routing.prefill_worker_id",
    "routing.priority_jump", "routing.routing_constraints", "routing.strict_priority",
}  # fmt: skip

# Fields of the same name and meaning.
_SAMPLING = (
    "n", "best_of", "presence_penalty", "frequency_penalty", "repetition_penalty", "temperature", "top_p", "top_k", "min_p",
    "include_stop_str_in_output",
)  # fmt: skip
_STOPS = ("stop_token_ids", "stop_token_ids_visible", "stop_token_ids_hidden")
_FORMS: dict[str, Any] = {"json": object, "regex": str, "choice": list, "grammar": str, "structural_tag": object}
_GRAMMARS = ("xgrammar", "auto")  # the library that makes them


class _Fields:
    """Of one group: those that are there, taken one by one. What is left in the end is not served."""

    def __init__(self, given: Any, name: str = "") -> None:
        if not isinstance(given, (Mapping, type(None))):
            raise InvalidArgumentError(f"{name or 'a request'} must be an object, not {given!r:.80}")
        self._name = name
        self._left = {key: value for key, value in (given or {}).items() if value is not None}

    def take(self, key: str, otherwise: Any = None, kind: Any = object) -> Any:
        value = self._left.pop(key, None)
        if value is not None and not isinstance(value, kind):
            raise InvalidArgumentError(f"{self._path(key)} must be of type {kind.__name__}, not {value!r:.80}")
        return otherwise if value is None else value

    def group(self, key: str) -> _Fields:
        return _Fields(self._left.pop(key, None), key)

    def expect(self, key: str, *harmless: Any) -> None:
        """A field that is not served, where it asks for anything else."""
        if (value := self._left.pop(key, None)) is not None and value not in harmless:
            raise UnsupportedError(f"{self._path(key)}={value!r:.80} is not served by this worker; leave it out")

    def refuse_rest(self) -> None:
        if unknown := [self._path(key) for key in sorted(self._left) if self._path(key) not in _OF_FRONTEND]:
            raise UnsupportedError(f"{', '.join(unknown)} is not served by this worker; leave it out")

    def _path(self, key: str) -> str:
        return f"{self._name}.{key}" if self._name else key


def question_of(request: Any, request_id: str, defaults: SamplingParams) -> Question:
    """`defaults` count where the request says nothing."""
    fields = _Fields(request)
    token_ids = fields.take("token_ids", [], list)
    try:
        array("I", token_ids)
    except (TypeError, OverflowError) as error:
        raise InvalidArgumentError(f"token_ids: give the prompt's token ids, whole numbers from 0 on ({error})") from None
    name = fields.take("model", "", str)
    length = prompt_length(request_id, fields.take("migration_link"), token_ids)
    routing = fields.group("routing")
    name = routing.take("lora_name", name, str)
    cache_salt = routing.take("cache_salt", "", str)
    priority = -routing.take("priority", 0, int)  # with Dynamo higher is earlier
    routing.refuse_rest()
    extra = fields.group("extra_args")
    params = _params(fields, extra, defaults, request_id, len(token_ids) - length)
    extra.refuse_rest()
    fields.refuse_rest()
    return Question(token_ids[:length], token_ids[length:], params, name, cache_salt, priority)


def _params(fields: _Fields, extra: _Fields, defaults: SamplingParams, request_id: str, given: int) -> SamplingParams:
    params = defaults.clone()
    sampling = _Fields({**fields.take("sampling_options", {}, dict), **extra.take("sampling_options", {}, dict)}, "sampling_options")
    for name in _SAMPLING:
        setattr(params, name, sampling.take(name, getattr(params, name)))
    params.allowed_token_ids = sampling.take("allowed_token_ids", None, list)
    params.seed = _seed(sampling.take("seed", None, int), request_id)
    params.structured_outputs = _form(sampling.group("guided_decoding"), bool(fields.take("require_reasoning")))
    sampling.expect("use_beam_search", False)
    sampling.expect("length_penalty", 1)
    sampling.expect("bad_words_token_ids", [])
    sampling.refuse_rest()

    stops = fields.group("stop_conditions")
    # Both counts are of the whole answer here. The frontend subtracts what was given before, down to 0.
    most = stops.take("max_tokens", None, int)
    params.max_tokens = None if most is None else most + given
    least = stops.take("min_tokens", 0, int)
    params.min_tokens = least + given if least else 0
    params.stop = stops.take("stop", None, list)
    params.stop_token_ids = list(dict.fromkeys(token for name in _STOPS for token in stops.take(name, [], list)))
    params.ignore_eos = stops.take("ignore_eos", False)
    stops.expect("max_thinking_tokens")
    stops.refuse_rest()

    output = fields.group("output_options")
    params.logprobs = output.take("logprobs")
    params.prompt_logprobs = output.take("prompt_logprobs")
    params.skip_special_tokens = output.take("skip_special_tokens", True)
    output.refuse_rest()
    return params


def _seed(given: int | None, request_id: str) -> int:
    """A request that migrates keeps its id, and so the answer goes on as it began without a seed too."""
    if given is not None:
        return given % 2**64
    return int.from_bytes(blake2b(request_id.encode(), digest_size=8).digest(), "little")


def _form(guided: _Fields, may_think_first: bool) -> StructuredOutputsParams | None:
    forms = {name: value for name, kind in _FORMS.items() if (value := guided.take(name, None, kind)) is not None}
    guided.expect("backend", *_GRAMMARS)
    guided.expect("whitespace_pattern")
    guided.refuse_rest()
    if not forms:
        return None
    if may_think_first:
        raise UnsupportedError("a form for what follows thoughts is not served by this worker; start it without --dyn-reasoning-parser")
    tag = forms.get("structural_tag")
    if tag is not None and not isinstance(tag, str):
        forms["structural_tag"] = json.dumps(tag)
    return StructuredOutputsParams(**forms)
