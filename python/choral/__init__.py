"""Choral: one base model, many LoRA adapters, any mix of them in one batch.

>>> from choral import LLM, SamplingParams
>>> llm = LLM("SmolLM2-135M-Instruct.gguf", adapters={"pirate": "adapters/pirate"})
>>> llm.chat("What is the capital of France?", SamplingParams(temperature=0), lora_request="pirate")
"""

from typing import TYPE_CHECKING, Any

from choral._choral import AdapterInfo, ModelInfo
from choral._choral import version as __version__
from choral.compare import Comparison
from choral.errors import ChoralError
from choral.llm import LLM
from choral.heatmap import HeatMap
from choral.lora import LoRARequest
from choral.outputs import ClassificationRequestOutput, CompletionOutput, EmbeddingRequestOutput, Logprob, RequestOutput, ScoringRequestOutput
from choral.sampling import SamplingParams, StructuredOutputsParams

if TYPE_CHECKING:
    from choral.async_llm import AsyncLLM

__all__ = [
    "LLM",
    "AdapterInfo",
    "AsyncLLM",
    "ChoralError",
    "ClassificationRequestOutput",
    "Comparison",
    "CompletionOutput",
    "EmbeddingRequestOutput",
    "HeatMap",
    "LoRARequest",
    "Logprob",
    "ModelInfo",
    "RequestOutput",
    "SamplingParams",
    "ScoringRequestOutput",
    "StructuredOutputsParams",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name == "AsyncLLM":  # asyncio is half of what importing this package would take
        from choral.async_llm import AsyncLLM

        return AsyncLLM
    raise AttributeError(f"module 'choral' has no attribute {name!r}")
