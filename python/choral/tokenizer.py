"""The engine's tokenizer, in the words of transformers' tokenizers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from choral import _choral
from choral.lora import Adapter, uses_of
from choral.requests import Messages, chat_request
from choral.sampling import SamplingParams


class Tokenizer:
    def __init__(self, engine: _choral.Engine, adapter: Adapter, vocab_size: int) -> None:
        self._engine = engine
        self._adapter = adapter
        self.vocab_size = vocab_size

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return self._engine.tokenize(text, add_special_tokens, uses_of(self._adapter))

    def decode(self, token_ids: int | Sequence[int], *, skip_special_tokens: bool = False) -> str:
        ids = [token_ids] if isinstance(token_ids, int) else list(token_ids)
        return self._engine.detokenize(ids, skip_special_tokens, uses_of(self._adapter))

    def convert_ids_to_tokens(self, token_ids: Sequence[int]) -> list[str]:
        """As the tokenizer's file spells them: "Ġthe"."""
        return [self._engine.token_text(token) for token in token_ids]

    def apply_chat_template(
        self,
        messages: Messages,
        *,
        tokenize: bool = True,
        add_generation_prompt: bool = False,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **chat_template_kwargs: Any,
    ) -> str | list[int]:
        """transformers' defaults: token ids, without the turn that an answer begins with."""
        request = chat_request(
            messages,
            SamplingParams(),
            self._adapter,
            tools=tools,
            chat_template_kwargs=chat_template_kwargs,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
        )
        text = self._engine.apply_chat_template(request)
        return self.encode(text, add_special_tokens=False) if tokenize else text

    def __call__(self, text: str | Sequence[str], *, add_special_tokens: bool = True) -> dict[str, Any]:
        if isinstance(text, str):
            ids = self.encode(text, add_special_tokens=add_special_tokens)
            return {"input_ids": ids, "attention_mask": [1] * len(ids)}
        many = [self.encode(one, add_special_tokens=add_special_tokens) for one in text]
        return {"input_ids": many, "attention_mask": [[1] * len(ids) for ids in many]}

    def __len__(self) -> int:
        return self.vocab_size


def token_texts(engine: _choral.Engine) -> Callable[[int], str]:
    """What a token stands for in a text; of bytes that are no whole character their values: "<F0 9F>"."""

    @lru_cache(maxsize=1 << 16)
    def text_of(token: int) -> str:
        data = engine.token_bytes(token)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return f"<{data.hex(' ').upper()}>"

    return text_of
