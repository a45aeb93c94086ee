"""Pieces of answers as Dynamo's frontend reads them (its LLMEngineOutput)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from choral.outputs import CompletionOutput, Logprobs, RequestOutput

TokenBytes = Callable[[int], bytes]

_REASONS = {"stop": "stop", "length": "length", "abort": "cancelled"}


def chunk_of(news: CompletionOutput, token_bytes: TokenBytes) -> dict[str, Any]:
    chunk: dict[str, Any] = {"token_ids": news.token_ids, "index": news.index}
    if news.logprobs is not None:
        chunk["log_probs"] = [float(value) for value in news.logprobs.token_logprobs]
        chunk["top_logprobs"] = _top(news.logprobs, token_bytes)
    if news.finish_reason is not None:
        chunk["finish_reason"] = _REASONS[news.finish_reason]
    if news.stop_reason is not None:
        chunk["stop_reason"] = news.stop_reason
    return chunk


def _top(logprobs: Logprobs, token_bytes: TokenBytes) -> list[list[dict[str, Any]]]:
    return [
        [
            {"rank": rank, "token_id": int(token), "token": None, "bytes": list(token_bytes(int(token))), "logprob": float(value)}
            for rank, (token, value) in enumerate(zip(ids, values), start=1)
            if token >= 0
        ]
        for ids, values in zip(logprobs.top_ids, logprobs.top_logprobs)
    ]


def prompt_logprobs(logprobs: Logprobs) -> dict[str, Any]:
    """As the frontend reads them in `engine_data`."""
    positions: list[dict[str, Any] | None] = []
    for position in logprobs:
        if position is None:
            positions.append(None)
            continue
        told = {str(token): {"logprob": one.logprob, "rank": one.rank, "decoded_token": one.decoded_token} for token, one in position.items()}
        positions.append({token: {key: value for key, value in one.items() if value is not None} for token, one in told.items()})
    return {"prompt_logprobs": positions}


def usage(output: RequestOutput, prompt_tokens: int, answer_tokens: int) -> dict[str, Any]:
    """Of the whole answer, whoever gave its beginning."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": answer_tokens,
        "total_tokens": prompt_tokens + answer_tokens,
        "prompt_tokens_details": {"cached_tokens": min(output.num_cached_tokens, prompt_tokens)},
    }
