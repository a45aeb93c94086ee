"""Adapters side by side: the same prompts, answered in one batch with one seed, and where the answers part."""

from __future__ import annotations

import codecs
import math
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from choral.comparison_html import page, table
from choral.errors import InvalidArgumentError
from choral.lora import BASE, Adapter, label_of
from choral.outputs import CompletionOutput
from choral.sampling import SamplingParams

if TYPE_CHECKING:
    from choral.llm import LLM

TOP = 5  # tokens that are told beside the chosen one
END = "∎"


@dataclass(frozen=True)
class Token:
    text: str  # that the answer gets with it: nothing before the last part of a character
    name: str  # what it stands for by itself
    token_id: int
    logprob: float
    top: tuple[tuple[str, float], ...]  # the most likely ones, best first


@dataclass(frozen=True)
class Answer:
    adapter: str
    text: str
    tokens: tuple[Token, ...]
    finish_reason: str | None
    parts_at: int | None  # the first token that is not the first column's; None: there is none

    @property
    def mean_logprob(self) -> float:
        return sum(token.logprob for token in self.tokens) / len(self.tokens) if self.tokens else math.nan


class Comparison(Sequence["dict[str, Any]"]):
    """Rows of prompts, columns of adapters. It is a sequence of dicts, {"prompt": …, "base": …, "pirate": …}: pandas.DataFrame(it)
    works. In a notebook it shows itself, elsewhere print() does; to_html() writes a page."""

    def __init__(self, prompts: Sequence[str], rows: Sequence[Sequence[Answer]]) -> None:
        self.prompts = list(prompts)
        self.answers = [list(row) for row in rows]
        self.adapters = [answer.adapter for answer in self.answers[0]] if self.answers else []

    def __len__(self) -> int:
        return len(self.prompts)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        row: dict[str, Any] = {"prompt": self.prompts[index]}
        row.update((answer.adapter, answer.text) for answer in self.answers[index])
        return row

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[i] for i in range(len(self)))

    def _repr_html_(self) -> str:
        return table(self)

    def to_html(self, path: Any) -> None:
        """One file that needs no other."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(page(self))

    def __str__(self) -> str:
        width = max(40, shutil.get_terminal_size((100, 24)).columns)
        lines: list[str] = []
        for prompt, row in zip(self.prompts, self.answers):
            lines.append(_wrapped(prompt, "", width))
            indent = max(len(answer.adapter) for answer in row) + 2
            for answer in row:
                where = "" if answer.parts_at is None else f"   [parts at token {answer.parts_at + 1}]"
                lines.append(_wrapped(answer.text.strip() + where, answer.adapter.ljust(indent), width))
            lines.append("")
        return "\n".join(lines).rstrip()

    def __repr__(self) -> str:
        return f"Comparison({len(self)} prompts × {', '.join(self.adapters)})\n{self}"


def _wrapped(text: str, head: str, width: int) -> str:
    lines = textwrap.wrap(text, width - len(head)) or [""]
    return "\n".join((head if i == 0 else " " * len(head)) + line for i, line in enumerate(lines))


def compare(
    llm: LLM,
    prompts: str | Sequence[str],
    adapters: Sequence[Adapter] | None,
    sampling_params: SamplingParams | None,
    *,
    chat: bool | None,
    use_tqdm: bool,
) -> Comparison:
    prompts = [prompts] if isinstance(prompts, str) else list(prompts)
    if adapters is None:
        adapters = [BASE, *(info.name for info in llm.adapters())]
    if not adapters:
        raise InvalidArgumentError("adapters: give at least one, \"base\" among them if it should answer, or leave it out for all")
    params = (sampling_params or SamplingParams(temperature=0, max_tokens=128)).clone()
    params.logprobs = max(params.logprobs or 0, TOP)
    params.detokenize = True
    if params.seed is None:
        params.seed = 0  # one seed for all: what differs is the adapters' doing
    ask = llm.chat if (llm.model_info.has_chat_template if chat is None else chat) else llm.generate
    asked = [(prompt, adapter) for prompt in prompts for adapter in adapters]
    outputs = ask([prompt for prompt, _ in asked], params, lora_request=[adapter for _, adapter in asked], use_tqdm=use_tqdm)
    completions = iter(output.outputs[0] for output in outputs)
    rows = []
    for _ in prompts:
        row: list[Answer] = []
        for adapter in adapters:
            row.append(_answer(llm, label_of(adapter), next(completions), row[0] if row else None))
        rows.append(row)
    return Comparison(prompts, rows)


def _answer(llm: LLM, label: str, completion: CompletionOutput, first: Answer | None) -> Answer:
    tokens = tuple(_tokens(llm, completion))
    parts_at = None
    if first is not None:
        ids, others = [token.token_id for token in tokens], [token.token_id for token in first.tokens]
        if ids != others:
            parts_at = next((i for i, (a, b) in enumerate(zip(ids, others)) if a != b), min(len(ids), len(others)))
    return Answer(label, completion.text, tokens, completion.finish_reason, parts_at)


def _tokens(llm: LLM, completion: CompletionOutput) -> Iterator[Token]:
    assert completion.logprobs is not None
    text = codecs.getincrementaldecoder("utf-8")("replace")
    left = completion.text
    for token_id, position in zip(completion.token_ids, completion.logprobs):
        assert position is not None
        best = sorted(position.values(), key=lambda one: -one.logprob)[:TOP]
        chosen = position[token_id]
        news = text.decode(llm.token_bytes(token_id))
        if not left.startswith(news):  # a token that ends the answer is not part of its text
            news = END if not left else news
        left = left.removeprefix(news)
        name = chosen.decoded_token or ""
        yield Token(news, name, token_id, chosen.logprob, tuple((one.decoded_token or "", one.logprob) for one in best))
