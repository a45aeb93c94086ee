"""Two texts compared, as the server's /v1/score does: by their vectors, or by what the model says of the pair."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from choral import _choral
from choral.errors import InvalidArgumentError, UnsupportedError
from choral.lora import Adapter, uses_of
from choral.outputs import ScoringOutput, ScoringRequestOutput, class_probabilities
from choral.requests import chat_request, prompt_request
from choral.sampling import SamplingParams

if TYPE_CHECKING:
    from choral.llm import LLM

T = TypeVar("T")

# Qwen3-Reranker's own words, as in src/serve/ranking.
_JUDGE = (
    "Judge whether the Document meets the requirements based on the Query and the Instruct provided. Note that the answer can only be "
    '"yes" or "no".'
)
_USUAL_INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"


def scored(
    llm: LLM,
    text_1: str | Sequence[str],
    text_2: str | Sequence[str],
    adapter: Adapter,
    use_tqdm: bool,
    *,
    truncate_prompt_tokens: int | None,
    by: str | None,
    instruction: str,
) -> list[ScoringRequestOutput]:
    left, right = ([text] if isinstance(text, str) else list(text) for text in (text_1, text_2))
    if not left or not right or 1 not in (len(left), len(right)) and len(left) != len(right):
        raise InvalidArgumentError(f"{len(left)} texts stand against {len(right)}: give one on one side, or as many on both")
    has_head = len(llm.model_info.class_labels) == 1
    by = by or ("head" if has_head else "vectors")
    if by in ("vectors", "head") and instruction:
        raise UnsupportedError('instruction goes with score_by="yes-no": texts are compared as they are; put it before the text')
    if by == "vectors":
        return _by_vectors(llm, left, right, adapter, use_tqdm, truncate_prompt_tokens)
    if by == "head":
        if not has_head:
            raise UnsupportedError(f'score_by="head": this model has a head of {len(llm.model_info.class_labels)} classes, and one is wanted')
        return _by_head(llm, _pairs(left, right), adapter, use_tqdm, truncate_prompt_tokens)
    if by != "yes-no":
        raise InvalidArgumentError(f'score_by={by!r}: choose "vectors", "yes-no" or "head"')
    if truncate_prompt_tokens is not None:
        raise UnsupportedError('truncate_prompt_tokens would cut the question that score_by="yes-no" asks; give shorter texts')
    return _by_questions(llm, _pairs(left, right), adapter, use_tqdm, instruction or _USUAL_INSTRUCTION)


def _pairs(left: list[T], right: list[T]) -> list[tuple[T, T]]:
    most = max(len(left), len(right))
    return list(zip(left * most if len(left) == 1 else left, right * most if len(right) == 1 else right))


def _by_vectors(
    llm: LLM, left: list[str], right: list[str], adapter: Adapter, use_tqdm: bool, truncate: int | None
) -> list[ScoringRequestOutput]:
    import numpy as np

    requests = [prompt_request(text, SamplingParams(truncate_prompt_tokens=truncate), adapter) for text in left + right]
    for request in requests:
        request.embedding = True
    outputs = _answers(llm, requests, use_tqdm)
    vectors = [output.take_embedding() for output in outputs]
    numbers = list(range(len(outputs)))
    scores = []
    for i, (a, b) in enumerate(_pairs(numbers[: len(left)], numbers[len(left) :])):
        cosine = float((vectors[a] * vectors[b]).sum(dtype=np.float64))  # of vectors of length 1
        scores.append(_score(i, cosine, outputs[a].prompt_token_ids + outputs[b].prompt_token_ids))
    return scores


def _by_head(
    llm: LLM, pairs: list[tuple[str, str]], adapter: Adapter, use_tqdm: bool, truncate: int | None
) -> list[ScoringRequestOutput]:
    """Tokens of the one text behind those of the other, as tokenizers put pairs."""
    requests = []
    for left, right in pairs:
        ids = llm._engine.tokenize(left, True, uses_of(adapter)) + llm._engine.tokenize(right, False, uses_of(adapter))
        request = prompt_request({"prompt_token_ids": ids}, SamplingParams(truncate_prompt_tokens=truncate), adapter)
        request.classes = True
        requests.append(request)
    outputs = _answers(llm, requests, use_tqdm)
    return [_score(i, class_probabilities(one.take_classes())[0], one.prompt_token_ids) for i, one in enumerate(outputs)]


def _by_questions(llm: LLM, pairs: list[tuple[str, str]], adapter: Adapter, use_tqdm: bool, instruction: str) -> list[ScoringRequestOutput]:
    words = [_only_token(llm, word, adapter) for word in ("yes", "no")]
    params = SamplingParams(temperature=0, max_tokens=1, logprobs=0, logprob_token_ids=words)
    requests = []
    for query, document in pairs:
        messages = [
            {"role": "system", "content": _JUDGE},
            {"role": "user", "content": f"<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}"},
        ]
        asked = chat_request(messages, params, None, chat_template_kwargs={"enable_thinking": False})
        request = prompt_request(llm._engine.apply_chat_template(asked), params, adapter)
        request.add_special_tokens = False  # the template writes them
        requests.append(request)
    scores = []
    for i, output in enumerate(_answers(llm, requests, use_tqdm)):
        arrays = output.completions[0].logprobs()
        assert arrays is not None
        yes, no = (float(value) for value in arrays[4][0])
        scores.append(_score(i, 1 / (1 + math.exp(min(no - yes, 700))), output.prompt_token_ids))
    return scores


def _only_token(llm: LLM, word: str, adapter: Adapter) -> int:
    ids = llm._engine.tokenize(word, False, uses_of(adapter))
    if len(ids) != 1:
        raise UnsupportedError(f"score_by=\"yes-no\": '{word}' is {len(ids)} tokens to this model, and must be one")
    return ids[0]


def _answers(llm: LLM, requests: list[_choral.Request], use_tqdm: bool) -> list[_choral.Output]:
    outputs = llm._run(requests, use_tqdm)
    for output in outputs:
        output.check()
    return outputs


def _score(index: int, score: float, token_ids: list[int]) -> ScoringRequestOutput:
    return ScoringRequestOutput(f"score-{index}", ScoringOutput(score), token_ids)
