"""`import choral.compat.vllm` before a program that imports vllm: it gets this engine under vllm's names.

Served are vllm.LLM, SamplingParams, BeamSearchParams, TokensPrompt, TextPrompt, RequestOutput, CompletionOutput, vllm.sampling_params,
vllm.lora.request, vllm.inputs, vllm.outputs, vllm.tokenizers and resolve_chat_template: what lm-eval's `--model vllm` and Outlines
use. It is refused where the real vllm is installed, and whatever else is asked for is an ImportError.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

from choral.errors import AlreadyExistsError
from choral.llm import LLM as ChoralLLM
from choral.lora import LoRARequest
from choral.outputs import CompletionOutput, RequestOutput
from choral.sampling import SamplingParams as ChoralSamplingParams
from choral.sampling import StructuredOutputsParams

VERSION = "0.11.0"  # whose names these are


class LLM(ChoralLLM):
    """With `llm_engine`, through which programs ask for the model's length."""

    def __init__(self, model: str, **arguments: Any) -> None:
        super().__init__(model, **arguments)
        config = SimpleNamespace(model=model, max_model_len=self.model_info.max_model_len, get_vocab_size=lambda: self.model_info.vocab_size)
        self.llm_engine = SimpleNamespace(model_config=config)

    def beam_search(
        self, prompts: Any, params: BeamSearchParams, lora_request: Any = None, use_tqdm: bool = False, concurrency_limit: int | None = None
    ) -> list[BeamSearchOutput]:
        """The `beam_width` best answers to each prompt. They are found and ranked as transformers does it (SamplingParams'
        use_beam_search), where vLLM's own search counts the prompt's tokens as the answer's and never ends early. All prompts
        are searched beside each other, as many as have room: `concurrency_limit` changes nothing."""
        asked = SamplingParams(
            use_beam_search=True, n=params.beam_width, max_tokens=params.max_tokens, ignore_eos=params.ignore_eos, length_penalty=params.length_penalty,
            include_stop_str_in_output=params.include_stop_str_in_output,
        )  # fmt: skip
        outputs = self.generate(prompts, asked, use_tqdm=use_tqdm, lora_request=lora_request)
        return [BeamSearchOutput([self._sequence(output, one) for one in output.outputs]) for output in outputs]

    def _sequence(self, output: RequestOutput, one: CompletionOutput) -> BeamSearchSequence:
        prompt = output.prompt
        if prompt is None:  # it was given as tokens
            prompt = self.get_tokenizer(one.lora_request).decode(output.prompt_token_ids)
        return BeamSearchSequence(
            tokens=[*output.prompt_token_ids, *one.token_ids],
            text=prompt + one.text,
            cum_logprob=one.cumulative_logprob,
            finish_reason=one.finish_reason,
            stop_reason=one.stop_reason,
            lora_request=one.lora_request,
        )


class SamplingParams(ChoralSamplingParams):
    """With the list of its fields, through which Outlines copies it."""

    __struct_fields__ = tuple(one.name for one in fields(ChoralSamplingParams))


@dataclass
class BeamSearchParams:
    """Nothing is drawn, so `temperature` rules nothing."""

    beam_width: int
    max_tokens: int
    ignore_eos: bool = False
    temperature: float = 0.0
    length_penalty: float = 1.0
    include_stop_str_in_output: bool = False


@dataclass
class BeamSearchSequence:
    """`tokens` and `text` begin with the prompt's."""

    tokens: list[int]
    text: str
    cum_logprob: float | None
    logprobs: list[Any] = field(default_factory=list)  # none
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    lora_request: Any = None


@dataclass
class BeamSearchOutput:
    sequences: list[BeamSearchSequence]


class TokensPrompt(dict[str, Any]):
    """{"prompt_token_ids": […]}"""


class TextPrompt(dict[str, Any]):
    """{"prompt": "…"}"""


def get_tokenizer(name: str, *, tokenizer_mode: str = "auto", **arguments: Any) -> Any:
    """transformers' tokenizer of the model's folder."""
    from transformers import AutoTokenizer  # type: ignore[import-not-found,unused-ignore]

    return AutoTokenizer.from_pretrained(name, **arguments)


def resolve_chat_template(tokenizer: Any, chat_template: str | None = None, **_: Any) -> str | None:
    return chat_template if chat_template is not None else tokenizer.chat_template


_MODULES: dict[str, dict[str, Any]] = {
    "vllm": {
        "LLM": LLM, "SamplingParams": SamplingParams, "TokensPrompt": TokensPrompt, "TextPrompt": TextPrompt,
        "RequestOutput": RequestOutput, "CompletionOutput": CompletionOutput, "BeamSearchParams": BeamSearchParams, "__version__": VERSION,
    },
    "vllm.inputs": {"TokensPrompt": TokensPrompt, "TextPrompt": TextPrompt},
    "vllm.lora": {},
    "vllm.lora.request": {"LoRARequest": LoRARequest},
    "vllm.outputs": {"RequestOutput": RequestOutput, "CompletionOutput": CompletionOutput},
    "vllm.sampling_params": {
        "SamplingParams": SamplingParams, "StructuredOutputsParams": StructuredOutputsParams, "GuidedDecodingParams": StructuredOutputsParams,
        "BeamSearchParams": BeamSearchParams,
    },
    "vllm.tokenizers": {"get_tokenizer": get_tokenizer},
    "vllm.transformers_utils": {},
    "vllm.transformers_utils.tokenizer": {"get_tokenizer": get_tokenizer},
    "vllm.renderers": {},
    "vllm.renderers.hf": {"resolve_chat_template": resolve_chat_template},
    "vllm.entrypoints": {},
    "vllm.entrypoints.chat_utils": {"resolve_hf_chat_template": resolve_chat_template},
}  # fmt: skip


class _Distribution(importlib.metadata.Distribution):
    """Programs ask which vllm is installed."""

    def read_text(self, filename: str) -> str | None:
        return f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}\n" if filename == "METADATA" else None

    def locate_file(self, path: Any) -> Any:
        raise FileNotFoundError(path)


class _Finder:
    @staticmethod
    def find_spec(*_: Any) -> None:
        return None

    @staticmethod
    def find_distributions(context: importlib.metadata.DistributionFinder.Context) -> Iterable[importlib.metadata.Distribution]:
        return [_Distribution()] if context.name == "vllm" else []


def _install() -> None:
    if "vllm" not in sys.modules and importlib.util.find_spec("vllm") is not None:
        raise AlreadyExistsError("vllm itself is installed here, so choral.compat.vllm does not take its name; uninstall one of them")
    for name, contents in _MODULES.items():
        module = ModuleType(name, __doc__)
        module.__dict__.update(contents, __path__=[], __spec__=ModuleSpec(name, None, is_package=True))
        sys.modules[name] = module
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)
    sys.meta_path.append(_Finder)


if "vllm" not in sys.modules:
    _install()
