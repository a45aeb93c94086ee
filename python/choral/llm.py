"""The engine for programs that wait for their answers: vLLM's LLM, with adapters by name."""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from choral import _choral
from choral.adapters import LoadedAdapter, Source, adapter_spec, load_missing
from choral.compare import Comparison, compare
from choral.errors import InvalidArgumentError
from choral.lora import Adapter, LoRARequest
from choral.options import engine_options
from choral.outputs import (
    Asked,
    ClassificationOutput,
    ClassificationRequestOutput,
    EmbeddingOutput,
    EmbeddingRequestOutput,
    RequestOutput,
    ScoringRequestOutput,
    class_probabilities,
    request_output,
)
from choral.progress import progress_bar
from choral.requests import Messages, Prompt, chat_request, conversations_of, prompt_request, prompts_of, text_of
from choral.sampling import SamplingParams
from choral.scores import scored
from choral.tokenizer import Tokenizer, token_texts


class LLM:
    """A model in memory. Many prompts, each with its own sampling and its own adapter, are answered in one batch.

    `model` is a folder, a GGUF file, or org/name in the local Hugging Face cache. `adapters` maps names to what answers by them: a
    folder in PEFT's form, a PeftModel, or (state dict, config). What else may be given is said in docs/python.md; the engine's
    choices are in `model_info.notes`. Close it, or use it in a with statement, to end its threads at once.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        adapters: Mapping[str, Source] | None = None,
        dtype: str | None = None,
        quantization: str | None = None,
        seed: int | None = None,
        max_model_len: int | None = None,
        max_num_seqs: int | None = None,
        threads: int | None = None,
        **arguments: Any,
    ) -> None:
        arguments |= {
            "dtype": dtype,
            "quantization": quantization,
            "seed": seed,
            "max_model_len": max_model_len,
            "max_num_seqs": max_num_seqs,
            "threads": threads,
        }
        self._engine = _choral.Engine.load(engine_options(model, adapters, arguments))
        _open.add(self)
        self._text_of = token_texts(self._engine)
        self.model_info: _choral.ModelInfo = self._engine.info()

    # --- answers ---

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
        lora_request: Adapter | Sequence[Adapter] = None,
    ) -> list[RequestOutput]:
        """Continues each prompt. `sampling_params` and `lora_request` are one for all, or one a prompt. An error of one prompt is
        raised; nothing is lost silently. Ctrl-C cancels what is in flight and leaves the engine usable."""
        many = prompts_of(prompts)
        adapters = _one_each(many, lora_request, "lora_request", (str, LoRARequest, Mapping))
        params = _one_each(many, sampling_params or self.get_default_sampling_params(), "sampling_params", (SamplingParams,))
        requests = [prompt_request(*one) for one in zip(many, params, adapters)]
        return self._answer(requests, [text_of(prompt) for prompt in many], params, adapters, use_tqdm)

    def chat(
        self,
        messages: Messages | Sequence[Messages],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
        lora_request: Adapter | Sequence[Adapter] = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        response_format: Mapping[str, Any] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
    ) -> list[RequestOutput]:
        """Answers each conversation: a list of messages, or a text, which is the user's only message."""
        many = conversations_of(messages)
        adapters = _one_each(many, lora_request, "lora_request", (str, LoRARequest, Mapping))
        params = _one_each(many, sampling_params or self.get_default_sampling_params(), "sampling_params", (SamplingParams,))
        requests = [
            chat_request(
                *one,
                tools=tools,
                response_format=response_format,
                chat_template_kwargs=chat_template_kwargs,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=continue_final_message,
            )
            for one in zip(many, params, adapters)
        ]
        return self._answer(requests, [None] * len(many), params, adapters, use_tqdm)

    def embed(
        self,
        prompts: Prompt | Sequence[Prompt],
        *,
        use_tqdm: bool = True,
        lora_request: Adapter | Sequence[Adapter] = None,
        dimensions: int | None = None,
    ) -> list[EmbeddingRequestOutput]:
        """The final hidden state of each prompt, pooled as the model's files say, of length 1. `dimensions`: its first so many
        numbers, of a model that was trained so."""
        natives = self._pool(prompts, lora_request, use_tqdm, embedding=True, embedding_dimensions=dimensions or 0)
        return [EmbeddingRequestOutput(one.id, EmbeddingOutput(one.take_embedding()), one.prompt_token_ids) for one in natives]

    def classify(
        self, prompts: Prompt | Sequence[Prompt], *, use_tqdm: bool = True, lora_request: Adapter | Sequence[Adapter] = None
    ) -> list[ClassificationRequestOutput]:
        """Which class each prompt is of, by a model with a head of classes (…ForSequenceClassification) or an adapter's own."""
        out = []
        for native in self._pool(prompts, lora_request, use_tqdm, classes=True):
            probs = class_probabilities(native.take_classes())
            label = self.model_info.class_labels[probs.index(max(probs))]
            out.append(ClassificationRequestOutput(native.id, ClassificationOutput(probs, label), native.prompt_token_ids))
        return out

    def _pool(
        self, prompts: Prompt | Sequence[Prompt], lora_request: Adapter | Sequence[Adapter], use_tqdm: bool, **wanted: bool | int
    ) -> list[_choral.Output]:
        many = prompts_of(prompts)
        adapters = _one_each(many, lora_request, "lora_request", (str, LoRARequest, Mapping))
        requests = [prompt_request(prompt, SamplingParams(), adapter) for prompt, adapter in zip(many, adapters)]
        for request in requests:
            for field, value in wanted.items():
                setattr(request, field, value)
        load_missing(self._engine, adapters)
        natives = list(self._run(requests, use_tqdm))
        for native in natives:
            native.check()
        return natives

    def score(
        self,
        text_1: str | Sequence[str],
        text_2: str | Sequence[str],
        *,
        use_tqdm: bool = True,
        lora_request: Adapter = None,
        truncate_prompt_tokens: int | None = None,
        score_by: str | None = None,
        instruction: str = "",
    ) -> list[ScoringRequestOutput]:
        """How well two texts go together: one text against each of many, or pairs. `score_by` is the server's --score-by: the cosine
        of their "vectors"; "yes-no", how likely the model says that text_2 answers text_1, as rerankers that are chat models
        are trained to, by `instruction`; "head", what the model's head of one class makes of both, the usual where it has one."""
        load_missing(self._engine, [lora_request])
        return scored(
            self, text_1, text_2, lora_request, use_tqdm, truncate_prompt_tokens=truncate_prompt_tokens, by=score_by, instruction=instruction
        )

    def compare(
        self,
        prompts: str | Sequence[str],
        adapters: Sequence[Adapter] | None = None,
        sampling_params: SamplingParams | None = None,
        *,
        chat: bool | None = None,
        use_tqdm: bool = True,
    ) -> Comparison:
        """The same prompts, asked of several adapters in one batch with one seed. Without `adapters`: the base and every adapter
        that is loaded. `chat`: whether a prompt is a user's message; by default it is where the model has a chat template."""
        return compare(self, prompts, adapters, sampling_params, chat=chat, use_tqdm=use_tqdm)

    # --- texts and tokens ---

    def tokenize(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        if not isinstance(text, str):
            raise InvalidArgumentError(f"text: give a text, not {type(text).__name__}")
        return self._engine.tokenize(text, add_special_tokens)

    def detokenize(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        return self._engine.detokenize(list(token_ids), skip_special_tokens)

    def token_bytes(self, token_id: int) -> bytes:
        """What it stands for in a text; may cut a character."""
        return self._engine.token_bytes(token_id)

    def get_tokenizer(self, lora_request: Adapter = None) -> Tokenizer:
        """The base's, or that of an adapter with tokens of its own."""
        return Tokenizer(self._engine, lora_request, self.model_info.vocab_size)

    def apply_chat_template(self, messages: Messages, **arguments: Any) -> str:
        """The prompt that chat() would continue. Arguments are chat()'s: tools, chat_template_kwargs, …"""
        return self._engine.apply_chat_template(chat_request(messages, SamplingParams(), None, **arguments))

    def get_default_sampling_params(self) -> SamplingParams:
        """vLLM's defaults under what the model's files say (generation_config.json)."""
        return SamplingParams.of(self._engine.default_sampling(SamplingParams().native()))

    # --- adapters ---

    def load_adapter(self, name: str | LoRARequest, source: Source | None = None, *, replace: bool = False, pinned: bool = False) -> None:
        """Under `name` answers from now on what `source` holds: a folder, a PeftModel, or (state dict, config). The engine goes on
        answering meanwhile, and requests in flight keep what they began with."""
        if isinstance(name, LoRARequest):
            source = source or name.lora_path
            name = name.lora_name
        if source is None:
            raise InvalidArgumentError(f"adapter '{name}': say where it comes from: a folder, a PeftModel or (state dict, config)")
        self._engine.load_adapter(adapter_spec(name, source, pinned=pinned), replace)

    def unload_adapter(self, name: str) -> None:
        self._engine.unload_adapter(name)

    def pin_adapter(self, name: str, pinned: bool = True) -> None:
        """Keeps it in memory, or lets it be evicted again."""
        self._engine.pin_adapter(name, pinned)

    def adapters(self) -> list[_choral.AdapterInfo]:
        return self._engine.adapters()

    def adapter(self, name: str) -> LoadedAdapter:
        """The one of that name, to look at: `llm.adapter("pirate").heatmap()`."""
        return LoadedAdapter(self._engine, name)

    # --- the engine ---

    def stats(self) -> dict[str, int]:
        """Counts since the engine was loaded."""
        return self._engine.stats()

    @property
    def notes(self) -> list[str]:
        """Every choice and fallback that was made, with its reason."""
        return self.model_info.notes + self._engine.device_notes()

    def close(self) -> None:
        """Ends the engine's threads and gives its memory back. What is in flight elsewhere ends with an error."""
        self._engine.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"LLM({self.model_info.name!r}, {self.model_info.architecture}, {self.model_info.threads} threads)"

    # --- inside ---

    def _run(self, requests: list[_choral.Request], use_tqdm: bool) -> list[_choral.Output]:
        with progress_bar(len(requests), use_tqdm) as tell:
            return self._engine.generate(requests, tell)

    def _answer(
        self,
        requests: list[_choral.Request],
        texts: Sequence[str | None],
        params: Sequence[SamplingParams],
        adapters: Sequence[Adapter],
        use_tqdm: bool,
    ) -> list[RequestOutput]:
        load_missing(self._engine, adapters)
        out = []
        for native, text, one, adapter in zip(self._run(requests, use_tqdm), texts, params, adapters):
            native.check()
            out.append(request_output(native, Asked(text, adapter, one, self._text_of)))
        return out


def _one_each(many: Sequence[Any], given: Any, what: str, one: tuple[type, ...]) -> list[Any]:
    """`given` for each of `many`, where it is one; a list must be as long."""
    if isinstance(given, (*one, str)) or not isinstance(given, Sequence):  # what is neither, its reader refuses
        return [given] * len(many)
    if len(given) != len(many):
        raise InvalidArgumentError(f"{what} has {len(given)} entries for {len(many)} prompts; give one, or one a prompt")
    return list(given)


# Their threads end before the interpreter does.
_open: weakref.WeakSet[LLM] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for llm in list(_open):
        llm.close()
