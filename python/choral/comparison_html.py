"""A comparison as HTML. It needs no script and no other file: a token's list appears while the pointer is over it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from choral.compare import Answer, Comparison, Token

_STYLE = """
.choral-compare { --line: #d8dbe0; --head: #f4f5f7; --text: #1c1f24; --dim: #667080; --doubt: 210, 120, 20; --mark: #c2255c;
  color: var(--text); font: 14px/1.5 system-ui, sans-serif; overflow-x: auto; }
@media (prefers-color-scheme: dark) { .choral-compare { --line: #3a4048; --head: #23272e; --text: #e4e7eb; --dim: #98a2b3;
  --doubt: 240, 160, 60; --mark: #ff6b9d; } }
.choral-compare table { border-collapse: collapse; width: 100%; table-layout: fixed; min-width: 40em; }
.choral-compare th, .choral-compare td { border: 1px solid var(--line); padding: .5em .7em; text-align: left; vertical-align: top; }
.choral-compare th { background: var(--head); font-weight: 600; }
.choral-compare .prompt { color: var(--dim); white-space: pre-wrap; }
.choral-compare .answer { white-space: pre-wrap; overflow-wrap: anywhere; }
.choral-compare .facts { color: var(--dim); font-size: 12px; margin-top: .5em; }
.choral-compare .token { border-radius: 2px; cursor: help; }
.choral-compare .token.parts { outline: 2px solid var(--mark); outline-offset: 1px; }
""".strip()


def table(comparison: Comparison) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in comparison.adapters)
    rows = "".join(
        f'<tr><td class="prompt">{escape(prompt)}</td>{"".join(_cell(answer, row[0]) for answer in row)}</tr>'
        for prompt, row in zip(comparison.prompts, comparison.answers)
    )
    note = "Shading: how unlikely the model held the token. Framed: the first token that is not the first column's."
    return (
        f'<div class="choral-compare"><style>{_STYLE}</style><table><thead><tr><th scope="col">prompt</th>{head}</tr></thead>'
        f'<tbody>{rows}</tbody></table><p class="facts">{note} The most likely tokens appear when the pointer is on one.</p></div>'
    )


def page(comparison: Comparison) -> str:
    title = escape(f"Choral: {', '.join(comparison.adapters)}")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f'<meta name="color-scheme" content="light dark"><title>{title}</title></head><body>{table(comparison)}</body></html>\n'
    )


def _cell(answer: Answer, first: Answer) -> str:
    spans = "".join(_spans(answer, first))
    facts = f"{len(answer.tokens)} tokens"
    if not math.isnan(answer.mean_logprob):
        facts += f", mean log-probability {answer.mean_logprob:.2f}"
    if answer.parts_at is None and answer is not first:
        facts += ", the same tokens"
    return f'<td><div class="answer">{spans}</div><div class="facts">{facts}</div></td>'


def _spans(answer: Answer, first: Answer) -> Iterator[str]:
    """Of each token, or of the tokens that are a character together."""
    begin = 0
    for i, token in enumerate(answer.tokens):
        if token.text or i + 1 == len(answer.tokens):
            yield _span(range(begin, i + 1), answer, first)
            begin = i + 1


def _span(run: range, answer: Answer, first: Answer) -> str:
    tokens = [answer.tokens[i] for i in run]
    doubt = min(1.0, -min(token.logprob for token in tokens) / 5)
    parts = answer.parts_at is not None and answer.parts_at in run
    told = "\n\n".join(_told(answer.adapter, token) for token in tokens)
    if answer.parts_at is not None and parts and answer.parts_at < len(first.tokens):
        told += "\n\n" + _told(first.adapter, first.tokens[answer.parts_at])
    text = "".join(token.text for token in tokens)
    style = f' style="background: rgba(var(--doubt), {0.45 * doubt:.2f})"' if doubt > 0.02 else ""
    return f'<span class="token{" parts" if parts else ""}"{style} title="{escape(told)}">{escape(text)}</span>'


def _told(adapter: str, token: Token) -> str:
    best = "\n".join(f"{text!r}  {math.exp(logprob):.1%}" for text, logprob in token.top)
    return f"{adapter}: {token.name!r}  {math.exp(token.logprob):.1%}\n{best}"
