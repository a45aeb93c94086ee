"""What comes out: vLLM's records, made of the engine's."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from choral import _choral

from choral.sampling import SamplingParams

if TYPE_CHECKING:  # it takes longer to import than all the rest
    import numpy as np
    import numpy.typing as npt

TextOf = Callable[[int], "str | None"]


@dataclass(frozen=True)
class Asked:
    """What an answer's record says of its request."""

    prompt: str | None
    adapter: Any
    params: SamplingParams
    token_text: TextOf

    def text_of(self, token: int) -> str | None:
        return self.token_text(token) if self.params.detokenize else None


class Logprob(NamedTuple):
    """Of one token at one position. `rank` counts from 1; None where it was not asked for."""

    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


class Logprobs(Sequence["dict[int, Logprob] | None"]):
    """Of each position a dict: token id → Logprob, the token that stands there among them. The same as arrays, without a loop:
    `token_ids`, `token_logprobs` [n] of the tokens that stand there, `top_ids`, `top_logprobs` [n, k] of the most likely ones,
    best first."""

    def __init__(self, arrays: tuple[Any, ...], text_of: TextOf, *, of_prompt: bool = False) -> None:
        self.token_ids: npt.NDArray[np.int32] = arrays[0]
        self.token_logprobs: npt.NDArray[np.float32] = arrays[1]
        self.token_ranks: npt.NDArray[np.int32] = arrays[2]  # from 1; 0: not counted, as of an answer's tokens
        self.top_ids: npt.NDArray[np.int32] = arrays[3]
        self.top_logprobs: npt.NDArray[np.float32] = arrays[4]
        self._text_of = text_of
        self._first = 1 if of_prompt else 0  # nothing is before a prompt's first token

    def __len__(self) -> int:
        return len(self.token_ids) + self._first

    @overload
    def __getitem__(self, index: int) -> dict[int, Logprob] | None: ...
    @overload
    def __getitem__(self, index: slice) -> list[dict[int, Logprob] | None]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError("there is no such position")
        return self._position(index - self._first) if index >= self._first else None

    def _position(self, i: int) -> dict[int, Logprob]:
        chosen = int(self.token_ids[i])
        top = [int(token) for token in self.top_ids[i] if token >= 0]
        out = {
            token: Logprob(float(self.top_logprobs[i, j]), j + 1, self._text_of(token)) for j, token in enumerate(top)
        }
        if chosen not in out:
            rank = int(self.token_ranks[i]) or None
            out[chosen] = Logprob(float(self.token_logprobs[i]), rank, self._text_of(chosen))
        return out

    def __iter__(self) -> Iterator[dict[int, Logprob] | None]:
        return (self[i] for i in range(len(self)))

    def joined(self, news: Logprobs) -> Logprobs:
        """With those of the positions that follow."""
        import numpy as np

        most = max(self.top_ids.shape[1], news.top_ids.shape[1])
        arrays = (
            np.concatenate([self.token_ids, news.token_ids]),
            np.concatenate([self.token_logprobs, news.token_logprobs]),
            np.concatenate([self.token_ranks, news.token_ranks]),
            np.concatenate([_widened(one.top_ids, most, -1) for one in (self, news)]),
            np.concatenate([_widened(one.top_logprobs, most, -np.inf) for one in (self, news)]),
        )
        return Logprobs(arrays, self._text_of, of_prompt=self._first == 1)

    def __repr__(self) -> str:
        return f"Logprobs({len(self)} positions)"


def _widened(rows: npt.NDArray[Any], columns: int, filler: float) -> npt.NDArray[Any]:
    import numpy as np

    missing = columns - rows.shape[1]
    return np.pad(rows, ((0, 0), (0, missing)), constant_values=filler) if missing else rows


@dataclass
class CompletionOutput:
    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: float | None
    logprobs: Logprobs | None
    finish_reason: str | None = None  # "stop", "length"; None while it is streamed
    stop_reason: int | str | None = None
    lora_request: Any = None
    beam_score: float | None = None  # of beam search, by which the outputs are ranked

    def finished(self) -> bool:
        return self.finish_reason is not None


@dataclass
class RequestOutput:
    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    prompt_logprobs: Logprobs | None
    outputs: list[CompletionOutput]
    finished: bool
    metrics: _choral.RequestMetrics | None = None
    lora_request: Any = None
    num_cached_tokens: int = 0
    adapters: list[_choral.AnswerAdapter] = field(default_factory=list, repr=False)  # which contents answered


@dataclass
class EmbeddingOutput:
    embedding: npt.NDArray[np.float32]


@dataclass
class EmbeddingRequestOutput:
    request_id: str
    outputs: EmbeddingOutput
    prompt_token_ids: list[int]
    finished: bool = True


@dataclass
class ClassificationOutput:
    """`label` is the likeliest class's, by the model's files."""

    probs: list[float]
    label: str

    @property
    def num_classes(self) -> int:
        return len(self.probs)


@dataclass
class ClassificationRequestOutput:
    request_id: str
    outputs: ClassificationOutput
    prompt_token_ids: list[int]
    finished: bool = True


def class_probabilities(logits: npt.NDArray[np.float32]) -> list[float]:
    """Of one class the sigmoid, which says whether; of several their softmax, which says which."""
    wide = [float(logit) for logit in logits]
    if len(wide) == 1:
        return [1 / (1 + math.exp(min(-wide[0], 700)))]
    powers = [math.exp(logit - max(wide)) for logit in wide]
    return [power / sum(powers) for power in powers]


@dataclass
class ScoringOutput:
    score: float


@dataclass
class ScoringRequestOutput:
    """Of one pair of texts. `prompt_token_ids`: of both, or of the question that was asked about them."""

    request_id: str
    outputs: ScoringOutput
    prompt_token_ids: list[int]
    finished: bool = True


def request_output(native: _choral.Output, asked: Asked) -> RequestOutput:
    """The whole answer."""
    prompt_logprobs = native.prompt_logprobs()
    return RequestOutput(
        request_id=native.id,
        prompt=asked.prompt,
        prompt_token_ids=native.prompt_token_ids,
        prompt_logprobs=Logprobs(prompt_logprobs, asked.text_of, of_prompt=True) if prompt_logprobs is not None else None,
        outputs=[_completion(one, asked) for one in native.completions],
        finished=True,
        metrics=native.metrics,
        lora_request=asked.adapter,
        num_cached_tokens=native.cached_tokens,
        adapters=native.adapters,
    )


def _completion(native: _choral.Completion, asked: Asked) -> CompletionOutput:
    logprobs = native.logprobs()
    return CompletionOutput(
        index=native.index,
        text=native.text if asked.params.detokenize else "",
        token_ids=native.token_ids,
        cumulative_logprob=native.cumulative_logprob,
        logprobs=Logprobs(logprobs, asked.text_of) if logprobs is not None else None,
        finish_reason=native.finish_reason,
        stop_reason=_stop_reason(native),
        lora_request=asked.adapter,
        beam_score=native.beam_score,
    )


def _stop_reason(ended: _choral.Completion | _choral.Event) -> int | str | None:
    """The engine says a stop token's id in digits."""
    if not ended.stop_reason:
        return None
    return int(ended.stop_reason) if ended.stopped_by_token else ended.stop_reason


def stream_output(
    request_id: str,
    asked: Asked,
    events: Sequence[_choral.Event],
    so_far: dict[int, CompletionOutput],
    delta: bool,
    end: _choral.Output | None,
) -> Iterator[RequestOutput]:
    """An answer in the making: its news, or, unless `delta`, all there is with them."""
    for event in events:
        arrays = event.logprobs()
        news = CompletionOutput(
            index=event.index,
            text=event.text if asked.params.detokenize else "",
            token_ids=event.token_ids,
            cumulative_logprob=None,
            logprobs=Logprobs(arrays, asked.text_of) if arrays is not None else None,
            finish_reason=event.finish_reason,
            stop_reason=_stop_reason(event),
            lora_request=asked.adapter,
        )
        prompt_arrays = event.prompt_logprobs()
        finished = end is not None and event is events[-1]
        if not delta:
            news = so_far[event.index] = _joined(so_far.get(event.index), news)
        yield RequestOutput(
            request_id=request_id,
            prompt=asked.prompt,
            prompt_token_ids=[],
            prompt_logprobs=Logprobs(prompt_arrays, asked.text_of, of_prompt=True) if prompt_arrays is not None else None,
            outputs=[news] if delta else [so_far[i] for i in sorted(so_far)],
            finished=finished,
            lora_request=asked.adapter,
            num_cached_tokens=end.cached_tokens if end is not None and finished else 0,
        )
    if end is not None and not events:
        whole = request_output(end, asked)
        whole.outputs = []
        yield whole


def _joined(before: CompletionOutput | None, news: CompletionOutput) -> CompletionOutput:
    if before is None:
        return news
    return CompletionOutput(
        index=news.index,
        text=before.text + news.text,
        token_ids=before.token_ids + news.token_ids,
        cumulative_logprob=None,
        logprobs=before.logprobs.joined(news.logprobs) if before.logprobs is not None and news.logprobs is not None else None,
        finish_reason=news.finish_reason,
        stop_reason=news.stop_reason,
        lora_request=news.lora_request,
    )
