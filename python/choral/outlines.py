"""This engine as a model of Outlines: `from_choral(LLM("MODEL"))("How old is he?", int)`.

What the answer must look like goes to the engine's own grammars, so any mix of forms and adapters answers in one batch. Further
arguments of a call are LLM.generate()'s: sampling_params, lora_request, use_tqdm.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from outlines.models.vllm_offline import VLLMOffline  # type: ignore[import-not-found,unused-ignore]

from choral.errors import UnsupportedError
from choral.llm import LLM
from choral.sampling import SamplingParams, StructuredOutputsParams


class Choral(VLLMOffline):  # type: ignore[misc,unused-ignore]
    """Outlines knows its models by name, and this one is as vLLM's: it differs in whose SamplingParams it makes."""

    model: LLM

    def _check_chat_template(self) -> bool:
        return self.model.model_info.has_chat_template

    def _build_generation_args(self, inference_kwargs: dict[str, Any], output_type: Any = None) -> SamplingParams:
        given = inference_kwargs.pop("sampling_params", None)
        params: SamplingParams = (given or self.model.get_default_sampling_params()).clone()
        form = dict(self.type_adapter.format_output_type(output_type))
        if form.pop("whitespace_pattern", None) is not None:
            raise UnsupportedError("an output type's whitespace_pattern is not served; leave it out: any JSON white space may be written")
        if form:
            params.structured_outputs = StructuredOutputsParams(**form)
        return params

    def generate_stream(self, model_input: Any, output_type: Any = None, **inference_kwargs: Any) -> Iterator[str]:
        raise UnsupportedError("answers as they come are AsyncLLM's; Outlines reads them from the server, by outlines.from_vllm(client)")


def from_choral(llm: LLM) -> Choral:
    return Choral(llm)
