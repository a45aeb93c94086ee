"""Prompts and messages as the engine's requests."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Union

from choral import _choral
from choral.errors import InvalidArgumentError
from choral.lora import Adapter, uses_of
from choral.sampling import SamplingParams, StructuredOutputsParams, put

# A text, its token ids, or vLLM's {"prompt": …} and {"prompt_token_ids": …}. Such a dict may say with "continue_token_ids" which
# tokens of the answer were given before: the rest is told.
Prompt = Union[str, Sequence[int], Mapping[str, Any]]
Messages = Union[str, Sequence[Mapping[str, Any]]]


def text_of(prompt: Prompt) -> str | None:
    if isinstance(prompt, str):
        return prompt
    return prompt.get("prompt") if isinstance(prompt, Mapping) else None


def prompts_of(given: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """One or many, as many."""
    many = _listed(given, "prompts", "a text, its token ids, {'prompt_token_ids': …}")
    return [given] if isinstance(given, (str, Mapping)) or many and isinstance(many[0], int) else many  # type: ignore[list-item]


def conversations_of(given: Messages | Sequence[Messages]) -> list[Messages]:
    many = _listed(given, "messages", "a list of {'role': …, 'content': …}, a text, which is the user's only message")
    return [given] if isinstance(given, str) or many and isinstance(many[0], Mapping) else many  # type: ignore[list-item]


def _listed(given: Any, what: str, forms: str) -> list[Any]:
    if isinstance(given, bytes) or not isinstance(given, Iterable):
        raise InvalidArgumentError(f"{what}: give {forms}, or a list of these, not {type(given).__name__}")
    return list(given)


def prompt_request(prompt: Prompt, params: SamplingParams, adapter: Adapter) -> _choral.Request:
    request = _request(params, adapter)
    if isinstance(prompt, Mapping):
        known = {"prompt", "prompt_token_ids", "cache_salt", "continue_token_ids"}
        if unknown := sorted(set(prompt) - known):
            raise InvalidArgumentError(f"a prompt's {', '.join(unknown)} is not served; it may have {', '.join(sorted(known))}")
        request.cache_salt = prompt.get("cache_salt") or ""
        _put_given(request, prompt.get("continue_token_ids") or [])
        prompt = prompt.get("prompt_token_ids") or prompt.get("prompt") or ""
    if isinstance(prompt, str):
        put(request, "prompt", prompt)
    elif isinstance(prompt, Iterable) and not isinstance(prompt, bytes):
        put(request, "prompt_token_ids", list(prompt))
    else:
        raise InvalidArgumentError(f"a prompt is a text or its token ids, not {type(prompt).__name__}")
    return request


def _put_given(request: _choral.Request, ids: Any) -> None:
    """One answer's token ids, or with n a list of such lists."""
    try:
        request.given_token_ids = [ids] if isinstance(next(iter(ids), None), int) else ids
    except TypeError:
        raise InvalidArgumentError(
            f"continue_token_ids: give the token ids of the answer so far, or with n a list of such lists, not {ids!r:.80}"
        ) from None


def chat_request(
    messages: Messages,
    params: SamplingParams,
    adapter: Adapter,
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    response_format: Mapping[str, Any] | None = None,
    chat_template_kwargs: Mapping[str, Any] | None = None,
    add_generation_prompt: bool = True,
    continue_final_message: bool = False,
) -> _choral.Request:
    request = _request(params, adapter)
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    if not isinstance(messages, Iterable):
        raise InvalidArgumentError(f"a conversation is a list of messages or a text, not {type(messages).__name__}")
    request.messages_json = _json("messages", list(messages))
    if tools:
        request.tools_json = _json("tools", list(tools))
    if chat_template_kwargs:
        request.template_kwargs_json = _json("chat_template_kwargs", dict(chat_template_kwargs))
    if response_format is not None:
        request.structured_output = _response_format(response_format).native()
    request.add_generation_prompt = add_generation_prompt and not continue_final_message
    request.continue_final_message = continue_final_message
    return request


def _request(params: SamplingParams, adapter: Adapter) -> _choral.Request:
    if not isinstance(params, SamplingParams):
        raise InvalidArgumentError(f"sampling_params: give SamplingParams, or a list with one a prompt, not {type(params).__name__}")
    request = _choral.Request()
    request.sampling = params.native()
    request.adapters = uses_of(adapter)
    if params.structured_outputs is not None:
        request.structured_output = params.structured_outputs.native()
    if params.truncate_prompt_tokens is not None:
        request.truncate_prompt_tokens = params.truncate_prompt_tokens
    request.most_guessed = -1 if params.speculative else 0
    if params.prediction is not None:
        put(request, "prediction", params.prediction)
    return request


def _response_format(given: Mapping[str, Any]) -> StructuredOutputsParams:
    """OpenAI's."""
    kind = given.get("type")
    if kind == "text":
        return StructuredOutputsParams()
    if kind == "json_object":
        return StructuredOutputsParams(json_object=True)
    if kind == "json_schema" and isinstance(given.get("json_schema"), Mapping):
        schema = given["json_schema"].get("schema")
        return StructuredOutputsParams(json=schema if schema is not None else {})
    raise InvalidArgumentError(f"response_format: type must be text, json_object or json_schema with its schema, not {given!r}")


def _json(what: str, value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"{what} cannot be written as JSON: {error}") from None
