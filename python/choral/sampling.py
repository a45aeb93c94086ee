"""How an answer is drawn, and what it must look like. Names and defaults are vLLM's."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from typing import Any

from choral import _choral
from choral.errors import InvalidArgumentError, UnsupportedError


@dataclass(frozen=True)
class StructuredOutputsParams:
    """What the answer must look like: at most one of these. `json` is a schema, as a dict, JSON text or a pydantic model."""

    json: str | dict[str, Any] | type[Any] | None = None
    regex: str | None = None
    choice: Sequence[str] | None = None
    grammar: str | None = None
    json_object: bool = False
    structural_tag: str | None = None

    def native(self) -> _choral.StructuredOutput:
        kind = _choral.StructuredOutput.Kind
        given = [f.name for f in fields(self) if getattr(self, f.name) not in (None, False)]
        if len(given) > 1:
            raise InvalidArgumentError(f"structured outputs: {' and '.join(given)} are given; an answer keeps one form")
        if self.json is not None:
            return _choral.StructuredOutput(kind.JSON_SCHEMA, _schema_text(self.json))
        if self.regex is not None:
            return _choral.StructuredOutput(kind.REGEX, self.regex)
        if self.choice is not None:
            return _choral.StructuredOutput(kind.CHOICE, "", list(self.choice))
        if self.grammar is not None:
            return _choral.StructuredOutput(kind.GRAMMAR, self.grammar)
        if self.structural_tag is not None:
            return _choral.StructuredOutput(kind.STRUCTURAL_TAG, self.structural_tag)
        return _choral.StructuredOutput(kind.JSON_OBJECT if self.json_object else kind.NONE)


def _schema_text(schema: Any) -> str:
    if isinstance(schema, str):
        return schema
    if isinstance(schema, type) and hasattr(schema, "model_json_schema"):
        schema = schema.model_json_schema()
    return json.dumps(schema, ensure_ascii=False)


def put(record: Any, name: str, value: Any) -> None:
    """Sets a field of the engine's, or says what it wants."""
    try:
        setattr(record, name, value)
    except TypeError:
        raise InvalidArgumentError(f"{name} must be {_wanted(record, name)}, not {value!r:.80}") from None


def _wanted(record: Any, name: str) -> str:
    now = getattr(record, name)
    if name in ("prompt", "prediction", "stop", "bad_words", "dry_sequence_breakers"):
        return "a text, without halves of surrogate pairs" if name in ("prompt", "prediction") else "a list of texts, without halves of surrogate pairs"
    if isinstance(now, list):
        return "a list of token ids, whole numbers"
    return "a number, or None" if now is None else f"of type {type(now).__name__}"


@dataclass
class SamplingParams:
    """vLLM's words, then llama.cpp's. `max_tokens=None`: up to the model's length. `top_k` 0 and -1: all tokens. Keys of
    `logit_bias` are token ids, or texts, each of whose tokens is meant."""

    n: int = 1
    best_of: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop: str | Sequence[str] | None = None
    stop_token_ids: Sequence[int] | None = None
    bad_words: Sequence[str] | None = None
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    max_tokens: int | None = 16
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    logprob_token_ids: Sequence[int] | None = None
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True  # nothing is put between tokens, whatever it says, as with vLLM's fast tokenizers
    detokenize: bool = True  # False: answers have token ids and no text
    truncate_prompt_tokens: int | None = None
    logit_bias: Mapping[int | str, float] | None = None
    allowed_token_ids: Sequence[int] | None = None
    structured_outputs: StructuredOutputsParams | None = None
    typical_p: float = 1.0
    top_n_sigma: float = -1.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    penalty_last_n: int = -1
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = -1
    dry_sequence_breakers: Sequence[str] = ("\n", ":", '"', "*")
    speculative: bool = True  # False: no tokens are guessed for this answer, which is the same then, and slower
    prediction: str | None = None  # what the answer will say in all likelihood: tokens are guessed from it too
    extra_args: dict[str, Any] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.extra_args:
            raise UnsupportedError(f"extra_args is not served: nothing here reads {', '.join(sorted(self.extra_args))}")

    @classmethod
    def of(cls, native: _choral.SamplingParams) -> SamplingParams:
        """Numbers and switches as the engine has them; lists are left out."""
        return cls(top_k=native.top_k, **{name: getattr(native, name) for name in _SAME})

    def clone(self) -> SamplingParams:
        """A copy that may be changed."""
        return SamplingParams(**{f.name: getattr(self, f.name) for f in fields(self)})

    def stop_strings(self) -> list[str]:
        return [self.stop] if isinstance(self.stop, str) else list(self.stop or ())

    def native(self) -> _choral.SamplingParams:
        """As the engine takes them. It checks the values when a request comes."""
        out = _choral.SamplingParams()
        for name in _SAME:
            put(out, name, getattr(self, name))
        put(out, "best_of", self.best_of or 0)
        self._check_numbers()
        out.top_k = max(self.top_k, 0) if self.top_k >= -1 else self.top_k
        if self.max_tokens is not None and self.max_tokens < 1:
            raise InvalidArgumentError(f"max_tokens must be at least 1, or None for the model's length, not {self.max_tokens}")
        put(out, "max_tokens", self.max_tokens or 0)
        put(out, "stop", self.stop_strings())
        if out.stop and not self.detokenize:
            raise InvalidArgumentError("stop strings are looked for in the text: with detokenize=False use stop_token_ids")
        for name in ("stop_token_ids", "bad_words", "allowed_token_ids", "logprob_token_ids"):
            put(out, name, list(getattr(self, name) or ()))
        biases = (self.logit_bias or {}).items()
        out.logit_bias = sorted((int(token), float(bias)) for token, bias in biases if not isinstance(token, str))
        out.logit_bias_texts = [(text, float(bias)) for text, bias in biases if isinstance(text, str)]
        put(out, "dry_sequence_breakers", list(self.dry_sequence_breakers))
        return out

    def _check_numbers(self) -> None:
        for name, allowed in (("top_k", "a whole number"), ("max_tokens", "a whole number, or None")):
            value = getattr(self, name)
            if not (isinstance(value, Integral) or value is None and name == "max_tokens"):
                raise InvalidArgumentError(f"{name} must be {allowed}, not {value!r:.80}")
        for token, bias in (self.logit_bias or {}).items():
            if not isinstance(token, (Integral, str)) or not isinstance(bias, Real):
                raise InvalidArgumentError(f"logit_bias maps token ids or texts to numbers, and has {token!r:.80}: {bias!r:.80}")


_SAME = (
    "n", "presence_penalty", "frequency_penalty", "repetition_penalty", "temperature", "top_p", "min_p", "seed",
    "typical_p", "top_n_sigma", "xtc_probability", "xtc_threshold", "penalty_last_n", "dry_multiplier", "dry_base",
    "dry_allowed_length", "dry_penalty_last_n", "include_stop_str_in_output", "ignore_eos", "min_tokens", "logprobs", "prompt_logprobs", "skip_special_tokens",
)  # fmt: skip
